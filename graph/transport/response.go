package transport

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/runtime"
)

// maxErrors is the largest number of errors in a response.
const maxErrors = 20

// Encode returns a response as JSON. An operation that failed before it began has no data. The data
// of any other is JSON already, and is copied unchanged.
func Encode(r *graphql.Response) []byte {
	to := []byte{'{'}
	if len(r.Errors) > 0 {
		to = appendErrors(append(to, `"errors":`...), r.Errors)
	}
	if r.Data != nil {
		if len(r.Errors) > 0 {
			to = append(to, ',')
		}
		to = append(append(to, `"data":`...), r.Data...)
	}
	if len(r.Extensions) > 0 {
		if extensions, err := json.Marshal(r.Extensions); err == nil {
			to = append(append(to, `,"extensions":`...), extensions...)
		}
	}
	return append(to, '}')
}

// appendErrors appends the first maxErrors errors as JSON.
func appendErrors(to []byte, errs gqlerror.List) []byte {
	if left := len(errs) - maxErrors; left > 0 {
		errs = append(errs[:maxErrors:maxErrors], &gqlerror.Error{
			Message:    fmt.Sprintf("and %d more errors", left),
			Extensions: map[string]any{"code": runtime.CodeLimitExceeded, "retryable": false},
		})
	}
	text, err := json.Marshal(errs)
	if err != nil { // an extension that JSON can't represent
		text = []byte(`[{"message":"the server failed","extensions":{"code":"INTERNAL","retryable":true}}]`)
	}
	return append(to, text...)
}

// hex has the digits of escapes.
const hex = "0123456789abcdef"

// AppendString appends text as a JSON string. It replaces each byte that isn't part of a UTF-8
// character with U+FFFD.
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

// StringBytes returns the largest number of bytes that AppendString writes for text.
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

// plain reports whether eight bytes need no escaping in a JSON string, as most output does: ASCII
// without control characters, quotes and backslashes. Each subtraction borrows into a byte's
// highest bit if the byte is below the searched value.
func plain(eight uint64) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	quotes, backslashes := eight^each*'"', eight^each*'\\'
	return (eight|(eight-each*' ')|(quotes-each)|(backslashes-each))&high == 0
}
