package runtime

// A CompareMode says which differences between an output and the expected output count.
type CompareMode string

// The modes.
const (
	CompareExact   CompareMode = "EXACT"   // every byte
	CompareTrimmed CompareMode = "TRIMMED" // all except white space at line ends and empty lines at the end
	CompareTokens  CompareMode = "TOKENS"  // the words between white space
	CompareNumbers CompareMode = "NUMBERS" // as TOKENS; numbers may differ by the tolerance
)

// A Comparison is how an execution's stdout is compared with the expected output of its case, and
// the result.
type Comparison struct {
	Mode       CompareMode       `json:"mode"`
	Tolerance  float64           `json:"tolerance,omitempty"` // of NUMBERS: absolute, or relative to the expected number
	Bytes      int64             `json:"bytes"`               // size of the expected output
	Matches    *bool             `json:"matches,omitempty"`   // nil: not compared, because it hasn't exited with status 0
	Message    *string           `json:"message,omitempty"`   // why it doesn't match; nil: it isn't known that it doesn't
	Difference *OutputDifference `json:"difference,omitempty"`
}

// An OutputDifference is the first difference between an output and the expected output. The texts
// are cut, and are words with TOKENS and NUMBERS, otherwise lines.
type OutputDifference struct {
	Line     int     `json:"line"`               // of the output, from 1
	Expected *string `json:"expected,omitempty"` // nil: the expected output ends before
	Actual   *string `json:"actual,omitempty"`   // nil: the output ends before
}
