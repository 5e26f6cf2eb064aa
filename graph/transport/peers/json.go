package peers

import (
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
)

// The limits of JSON in requests. Decoded JSON takes up to 56 times the memory of its text.
const (
	maxDepth  = 100     // nested arrays and objects
	MaxValues = 100_000 // in all of them

	// ValueBytes is the memory for each value in addition to its text. An object in an object
	// takes most. It is measured: see TestDecodingTakesTheCountedMemory.
	ValueBytes = 352
)

// Values returns an upper bound of the number of values in a JSON text. It returns INVALID_INPUT
// for text that isn't UTF-8, and LIMIT_EXCEEDED for text that would take too much memory to decode.
// It finds no other errors.
func Values(text []byte) (values int, err error) {
	if !utf8.Valid(text) {
		return 0, runtime.Errorf(runtime.CodeInvalidInput, "the request isn't valid UTF-8")
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quoted {
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		}
		switch c {
		case '"':
			quoted = true
		case '{', '[':
			depth++
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		}
		if depth > maxDepth || values > MaxValues {
			return 0, runtime.Errorf(runtime.CodeLimitExceeded, "the request's JSON may be %d levels deep and hold %d values", maxDepth, MaxValues)
		}
	}
	return values, nil
}

// Expand takes the memory for the values of JSON texts that are decoded into maps and slices,
// without the texts themselves. It returns the errors of Values, or QUOTA_EXCEEDED.
func (h *Hold) Expand(texts ...[]byte) error {
	all := 0
	for _, text := range texts {
		values, err := Values(text)
		if err != nil {
			return err
		}
		all += values
	}
	return h.Grow(int64(all)*ValueBytes - FreeBody)
}
