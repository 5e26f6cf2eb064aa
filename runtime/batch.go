package runtime

import (
	"time"
)

// A Batch is an optional build followed by many cases, which run one after the other. Each of
// them is an execution. Cases count from 0; the build has the number BuildCase.
type Batch struct {
	ID            BatchID       `json:"id"`
	RunnerID      RunnerID      `json:"runnerId,omitempty"` // shared by all steps; "" means each case has its own runner
	EnvironmentID EnvironmentID `json:"environmentId"`
	Tenant        TenantID      `json:"tenant,omitempty"`
	HasBuild      bool          `json:"hasBuild,omitempty"` // its first execution is a build
	CaseCount     int           `json:"caseCount"`
	StopOnFailure bool          `json:"stopOnFailure,omitempty"`
	Key           string        `json:"key,omitempty"`
	Input         string        `json:"input,omitempty"`      // digest of the request made with Key
	Release       bool          `json:"release,omitempty"`    // remove its runner when it ends
	Lease         time.Duration `json:"lease,omitempty"`      // as of an execution
	InputBytes    int64         `json:"inputBytes,omitempty"` // stored for its cases until it ends
	State         BatchState    `json:"state"`
	Outcome       BatchOutcome  `json:"outcome,omitempty"` // "" until FINISHED
	Message       string        `json:"message,omitempty"` // the outcome in words
	Progress      BatchProgress `json:"progress"`
	QueuedAt      time.Time     `json:"queuedAt"`
	FinishedAt    time.Time     `json:"finishedAt"`
}

// BatchProgress counts a batch's cases. Cases begin in order, so the first Begun ones have begun.
type BatchProgress struct {
	Begun  int `json:"begun"`  // including ended ones
	Ended  int `json:"ended"`  //
	Failed int `json:"failed"` // ended, and not accepted: see Execution.Accepted
}

// BuildCase is the case number of a batch's build.
const BuildCase = -1

// MaxCases bounds the cases of a batch.
const MaxCases = 1000

// FreshRunners reports whether each case has a runner of its own.
func (b Batch) FreshRunners() bool { return b.RunnerID == "" }

// Skipped returns how many cases never began and never will. It is 0 until the batch is finished.
func (b Batch) Skipped() int {
	if b.State != BatchFinished {
		return 0
	}
	return b.CaseCount - b.Progress.Begun
}

// Steps returns the number of executions if all begin: the cases, and the build if there is one.
func (b Batch) Steps() int { return b.CaseCount - b.First() }

// First returns the number of the step that begins first: BuildCase or 0.
func (b Batch) First() int {
	if b.HasBuild {
		return BuildCase
	}
	return 0
}

// A BatchState says where a batch is in its life: RUNNING → FINISHED.
type BatchState string

// The states.
const (
	BatchRunning  BatchState = "RUNNING"  // the build or a case runs or waits
	BatchFinished BatchState = "FINISHED" // it has its outcome, which never changes
)

// A BatchOutcome is how a batch ended.
type BatchOutcome string

// The outcomes.
const (
	BatchCompleted   BatchOutcome = "COMPLETED"    // every case ended, passed or failed
	BatchBuildFailed BatchOutcome = "BUILD_FAILED" // the build failed, so no case began
	BatchStopped     BatchOutcome = "STOPPED"      // a case failed, and StopOnFailure was set
	BatchCancelled   BatchOutcome = "CANCELLED"    // a caller cancelled it
	BatchRunnerGone  BatchOutcome = "RUNNER_GONE"  // its runner was lost or removed
	BatchFailed      BatchOutcome = "FAILED"       // a case could not be started
)

// A BatchPosition is where an execution stands in its batch.
type BatchPosition struct {
	ID   BatchID `json:"id"`
	Case int     `json:"case"` // BuildCase: the build
}

// A CaseState is the state of a case.
type CaseState string

// The states.
const (
	CaseWaiting   CaseState = "WAITING"   // for earlier cases
	CaseRunning   CaseState = "RUNNING"   // its execution exists
	CasePassed    CaseState = "PASSED"    // it was accepted: see Execution.Accepted
	CaseFailed    CaseState = "FAILED"    // it ended in any other way
	CaseSkipped   CaseState = "SKIPPED"   // it never began
	CaseCollected CaseState = "COLLECTED" // it ended, and retention removed its execution
)

// A Case is one case of a batch.
type Case struct {
	Index     int
	State     CaseState
	Execution *Execution // nil means it has none yet, or retention removed it

	RecordBytes int // of the stored execution
}

// CaseState returns the state of a case. x is its execution; it is ignored unless known is set.
func (b Batch) CaseState(number int, x Execution, known bool) CaseState {
	switch {
	case known && x.State != ExecutionFinished:
		return CaseRunning
	case known && x.Accepted():
		return CasePassed
	case known:
		return CaseFailed
	case b.State != BatchFinished:
		return CaseWaiting
	case number < b.Progress.Begun:
		return CaseCollected
	default:
		return CaseSkipped
	}
}

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
	Matches    *bool             `json:"matches,omitempty"`   // nil means not compared, because it hasn't exited with status 0
	Message    *string           `json:"message,omitempty"`   // why it doesn't match; nil means that it isn't known that it doesn't
	Difference *OutputDifference `json:"difference,omitempty"`
}

// An OutputDifference is the first difference between an output and the expected output. The texts
// are cut, and are words with TOKENS and NUMBERS, otherwise lines.
type OutputDifference struct {
	Line     int     `json:"line"`               // of the output, from 1
	Expected *string `json:"expected,omitempty"` // nil means the expected output ends before
	Actual   *string `json:"actual,omitempty"`   // nil means the output ends before
}
