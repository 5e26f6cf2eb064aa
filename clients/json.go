package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
)

// The limits of JSON in requests. Decoded JSON takes up to 56 times the memory of its text.
const (
	maxDepth  = 100     // nested arrays and objects
	MaxValues = 100_000 // in all of them

	maxLocated = 1 << 20 // bytes before a character whose field is named

	// ValueBytes is the memory for each value in addition to its text. An object in an object
	// takes most. It is measured: see TestDecodingTakesTheCountedMemory.
	ValueBytes = 352
)

// Values returns an upper bound of the number of values in a JSON text. It returns INVALID_INPUT,
// with the field, for text that isn't UTF-8 and for half of a surrogate pair, because a decoder would
// replace both. It returns LIMIT_EXCEEDED for text that would take too much memory to decode. It
// finds no other errors.
func Values(text []byte) (values int, err error) {
	if !utf8.Valid(text) {
		at := 0
		for r, size := utf8.DecodeRune(text); r != utf8.RuneError || size > 1; r, size = utf8.DecodeRune(text[at:]) {
			at += size
		}
		return 0, runtime.Invalid(fieldAt(text[:at]), "isn't valid UTF-8")
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quoted {
			switch c {
			case '\\':
				escaped := escape(text[i:])
				if escaped == 0 {
					return 0, runtime.Invalid(fieldAt(text[:i]), "has half of a surrogate pair (\\ud800 to \\udfff), which isn't text")
				}
				i += escaped - 1
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

// HasHalfPair reports whether a string of JSON or GraphQL, as written, has half of a surrogate pair.
func HasHalfPair(text string) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		n := escape([]byte(text[i:min(len(text), i+12)]))
		if n == 0 {
			return true
		}
		i += n - 1
	}
	return false
}

// escape returns the length of the escape sequence at the start of text: 0 for half of a surrogate
// pair, and 2 for a malformed one.
func escape(text []byte) int {
	unit := func(text []byte) rune {
		if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
			return -1
		}
		n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(n)
	}
	first := unit(text)
	if !utf16.IsSurrogate(first) {
		return 2
	}
	if utf16.DecodeRune(first, unit(text[6:])) == utf8.RuneError {
		return 0
	}
	return 12
}

// fieldAt returns the path of the string in which a part of a JSON text ends, for example
// variables.input.write.0.path. It is empty if there is an error before, and for a long text, whose
// memory isn't counted.
func fieldAt(text []byte) string {
	if len(text) > maxLocated {
		return ""
	}
	type level struct {
		key   string
		index int
		array bool
		value bool // in an object: a value is next, not a key
	}
	var levels []level
	for tokens := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := tokens.Token()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil || len(levels) > maxDepth {
			return ""
		}
		var last *level
		if len(levels) > 0 {
			last = &levels[len(levels)-1]
		}
		switch key, isText := token.(string); {
		case token == json.Delim('{') || token == json.Delim('['):
			levels = append(levels, level{array: token == json.Delim('[')})
			continue
		case token == json.Delim('}') || token == json.Delim(']'):
			if levels = levels[:len(levels)-1]; len(levels) == 0 {
				return ""
			}
			last = &levels[len(levels)-1]
		case last == nil:
			return ""
		case isText && !last.array && !last.value:
			last.key, last.value = key, true
			continue
		}
		last.index++
		last.value = false
	}
	var names []string
	for _, l := range levels {
		switch {
		case l.array:
			names = append(names, strconv.Itoa(l.index))
		case l.value:
			names = append(names, l.key)
		}
	}
	return strings.Join(names, ".")
}

// Expand takes the memory for the values of JSON texts that are decoded into maps and slices,
// without the texts themselves. It returns the errors of Values, or QUOTA_EXCEEDED.
func (h *Reservation) Expand(texts ...[]byte) error {
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
