package transport

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/runtime"
)

// Bounds of JSON that comes in: what is decoded takes up to 56 times the memory
// of its text.
const (
	maxDepth  = 100     // nested arrays and objects
	maxValues = 100_000 // in all of them
)

// checkJSON refuses text that isn't UTF-8, or that would take much to decode. It
// returns how many values it has at most.
func checkJSON(text []byte) (values int, err error) {
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
		if depth > maxDepth || values > maxValues {
			return 0, runtime.Errorf(runtime.CodeLimitExceeded, "the request's JSON may be %d levels deep and hold %d values", maxDepth, maxValues)
		}
	}
	return values, nil
}

// decode reads JSON with numbers as they stand there.
func decode(text []byte, into any) error {
	if _, err := checkJSON(text); err != nil {
		return err
	}
	return unmarshal(text, into)
}

// unmarshal is decode for text that was checked.
func unmarshal(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return malformed(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return runtime.Errorf(runtime.CodeInvalidInput, "there is more than one value in the request")
	}
	return nil
}

func malformed(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		field := kind.Field
		if field == "" {
			field = "the request"
		}
		return runtime.Errorf(runtime.CodeInvalidInput, "%s can't be a JSON %s", field, kind.Value)
	}
	return runtime.Errorf(runtime.CodeInvalidInput, "the request isn't JSON: %s", err)
}

// decodeParams reads an operation from text that was checked.
func decodeParams(text []byte) (*graphql.RawParams, error) {
	var params struct {
		Query         *string        `json:"query"`
		OperationName string         `json:"operationName"`
		Variables     map[string]any `json:"variables"`
		Extensions    map[string]any `json:"extensions"`
	}
	if err := unmarshal(text, &params); err != nil {
		return nil, err
	}
	if params.Query == nil {
		return nil, runtime.Errorf(runtime.CodeInvalidInput, "the request has no query")
	}
	return &graphql.RawParams{Query: *params.Query, OperationName: params.OperationName, Variables: params.Variables, Extensions: params.Extensions}, nil
}

// maxErrors is how many errors an answer holds.
const maxErrors = 20

// AppendResponse appends a response as JSON. What failed before it began has no
// data; the data of an operation is there already, and is not looked at again.
func AppendResponse(to []byte, response *graphql.Response) []byte {
	to = append(to, '{')
	if len(response.Errors) > 0 {
		to = appendErrors(append(to, `"errors":`...), response.Errors)
	}
	if response.Data != nil {
		if len(response.Errors) > 0 {
			to = append(to, ',')
		}
		to = append(append(to, `"data":`...), response.Data...)
	}
	if len(response.Extensions) > 0 {
		if extensions, err := json.Marshal(response.Extensions); err == nil {
			to = append(append(to, `,"extensions":`...), extensions...)
		}
	}
	return append(to, '}')
}

func appendErrors(to []byte, errs gqlerror.List) []byte {
	if left := len(errs) - maxErrors; left > 0 {
		errs = append(errs[:maxErrors:maxErrors], &gqlerror.Error{
			Message:    fmt.Sprintf("and %d errors more", left),
			Extensions: map[string]any{"code": runtime.CodeLimitExceeded, "retryable": false},
		})
	}
	text, err := json.Marshal(errs)
	if err != nil { // an extension that JSON can't hold
		text = []byte(`[{"message":"the server failed","extensions":{"code":"INTERNAL","retryable":true}}]`)
	}
	return append(to, text...)
}

const hex = "0123456789abcdef"

// AppendString appends text as a JSON string, with U+FFFD for each byte that
// isn't part of a character.
func AppendString(to, text []byte) []byte {
	to = append(to, '"')
	start := 0
	for i := 0; i < len(text); {
		for len(text)-i >= 8 && plain(binary.LittleEndian.Uint64(text[i:])) {
			i += 8
		}
		if i == len(text) {
			break
		}
		c := text[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			to = append(to, text[start:i]...)
			switch c {
			case '"', '\\':
				to = append(to, '\\', c)
			case '\n':
				to = append(to, '\\', 'n')
			case '\r':
				to = append(to, '\\', 'r')
			case '\t':
				to = append(to, '\\', 't')
			default:
				to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			to = append(append(to, text[start:i]...), "\uFFFD"...)
			start = i + 1
		}
		i += size
	}
	return append(append(to, text[start:]...), '"')
}

// StringBytes returns how many bytes AppendString writes at most.
func StringBytes(text []byte) int64 {
	n, valid := 2+len(text), utf8.Valid(text)
	for _, c := range text {
		switch {
		case c >= utf8.RuneSelf:
			if !valid {
				n += len("\uFFFD") - 1
			}
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			n++
		case c < ' ':
			n += len(`\u0000`) - 1
		}
	}
	return int64(n)
}

// plain reports whether eight bytes stand in a JSON string as they are, which
// most output does: ASCII without control characters, quotes and backslashes.
// The subtractions borrow into a byte's highest bit if it is less than what it
// is looked at for.
func plain(eight uint64) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	quotes, backslashes := eight^each*'"', eight^each*'\\'
	return (eight|(eight-each*' ')|(quotes-each)|(backslashes-each))&high == 0
}
