// Package model holds the types of the API that package runtime lacks: scalars, pages, and one type
// for each kind of event.
package model

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/runtime"
)

// MarshalString writes a String or Cursor, for every string of the API. It replaces bytes that
// aren't UTF-8 with U+FFFD. A single invalid byte in a text message would make the peer close the
// whole WebSocket, with every subscription on it (RFC 6455, section 8.1).
func MarshalString(s string) graphql.Marshaler {
	return graphql.MarshalString(strings.ToValidUTF8(s, "\uFFFD"))
}

// copied bounds the strings that UnmarshalString copies. All that the server keeps are shorter.
const copied = 128 << 10

// UnmarshalString reads a String or Cursor. It copies strings: one that is written in the document
// would otherwise keep the whole document in memory.
func UnmarshalString(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", runtime.Invalid("", "must be a string")
	}
	if len(s) <= copied {
		s = strings.Clone(s)
	}
	return s, nil
}

// MarshalTime writes a Time in UTC. The zero time, which means never, is null.
func MarshalTime(t time.Time) graphql.Marshaler {
	if t.IsZero() {
		return graphql.Null
	}
	return graphql.WriterFunc(func(w io.Writer) {
		_, _ = io.WriteString(w, t.UTC().Format(`"`+time.RFC3339Nano+`"`))
	})
}

// UnmarshalTime reads a Time.
func UnmarshalTime(v any) (time.Time, error) {
	s, _ := v.(string)
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, runtime.Invalid("", "must be a time as in RFC 3339, for example 2026-11-20T21:27:00Z")
	}
	return t.UTC(), nil
}

// MarshalInt64 writes an Int64 as a number.
func MarshalInt64(n int64) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) { _, _ = io.WriteString(w, strconv.FormatInt(n, 10)) })
}

// UnmarshalInt64 reads an Int64 from a number or a decimal string.
func UnmarshalInt64(v any) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, nil
		}
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, runtime.Invalid("", "must be a whole number of 64 bits, or one as a string")
}

// MarshalMilliseconds writes a duration as an Int64 of milliseconds.
func MarshalMilliseconds(d time.Duration) graphql.Marshaler { return MarshalInt64(d.Milliseconds()) }

// UnmarshalMilliseconds reads an Int64 of milliseconds.
func UnmarshalMilliseconds(v any) (time.Duration, error) {
	n, err := UnmarshalInt64(v)
	return time.Duration(n) * time.Millisecond, err
}

// Milliseconds returns a duration in milliseconds, with their fraction.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// MarshalFractionalMilliseconds writes a duration as a Float of milliseconds.
func MarshalFractionalMilliseconds(d time.Duration) graphql.ContextMarshaler {
	return graphql.MarshalFloatContext(Milliseconds(d))
}

// UnmarshalFractionalMilliseconds reads a Float of milliseconds.
func UnmarshalFractionalMilliseconds(ctx context.Context, v any) (time.Duration, error) {
	n, err := graphql.UnmarshalFloatContext(ctx, v)
	return time.Duration(n * float64(time.Millisecond)), err
}

// MarshalBase64 writes bytes in base64.
func MarshalBase64(data []byte) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) {
		text := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+2)
		text = append(text, '"')
		text = base64.StdEncoding.AppendEncode(text, data)
		_, _ = w.Write(append(text, '"'))
	})
}

// UnmarshalBase64 reads bytes in base64.
func UnmarshalBase64(v any) ([]byte, error) {
	s, ok := v.(string)
	if !ok {
		return nil, runtime.Invalid("", "must be a string in base64")
	}
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, runtime.Invalid("", "must be standard base64 with padding")
	}
	return data, nil
}

// MarshalID writes an ID as MarshalString does.
func MarshalID(s string) graphql.Marshaler { return MarshalString(s) }

// UnmarshalID reads an ID from a string or a whole number.
func UnmarshalID(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return UnmarshalString(v)
	case json.Number:
		if _, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return v.String(), nil
		}
	case int64:
		return strconv.FormatInt(v, 10), nil
	}
	return "", runtime.Invalid("", "must be a string or a whole number")
}

// MarshalTenantID writes a tenant's name.
func MarshalTenantID(id runtime.TenantID) graphql.Marshaler { return MarshalString(id.String()) }

// UnmarshalTenantID reads a tenant's name.
func UnmarshalTenantID(v any) (runtime.TenantID, error) {
	name, err := UnmarshalString(v)
	if err != nil {
		return "", err
	}
	return runtime.ParseTenant("", name)
}
