package model

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/runtime"
)

func written(m graphql.Marshaler) string {
	var out strings.Builder
	m.MarshalGQL(&out)
	return out.String()
}

// FuzzMarshalString checks that no string can close a WebSocket.
func FuzzMarshalString(f *testing.F) {
	for _, seed := range []string{"", "plain", "a\xffb", "\xe2\x82", "\x00\x1b[31m\"\\\n\u2028", "日本語 🦀", "\xed\xa0\x80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, text := range []string{written(MarshalString(in)), written(MarshalID(in))} {
			var back string
			if err := json.Unmarshal([]byte(text), &back); err != nil || !utf8.ValidString(text) {
				t.Fatalf("%q became %q: %v", in, text, err)
			}
			if utf8.ValidString(in) && back != in {
				t.Fatalf("%q came back as %q", in, back)
			}
		}
	})
}

func TestInvalidBytesBecomeReplacementCharacters(t *testing.T) {
	if got := written(MarshalString("a\xffb")); got != `"a�b"` {
		t.Errorf("got %s", got)
	}
}

func TestTimeIsUTCWithNanoseconds(t *testing.T) {
	at := time.Date(2026, 11, 20, 22, 27, 0, 123456789, time.FixedZone("CET", 3600))
	text := written(MarshalTime(at))
	if text != `"2026-11-20T21:27:00.123456789Z"` {
		t.Errorf("got %s", text)
	}
	back, err := UnmarshalTime(strings.Trim(text, `"`))
	if err != nil || !back.Equal(at) {
		t.Errorf("came back as %v, %v", back, err)
	}
	if got := written(MarshalTime(time.Time{})); got != "null" {
		t.Errorf("never is %s, want null", got)
	}
	if _, err := UnmarshalTime("yesterday"); runtime.CodeOf(err) != runtime.CodeInvalidInput {
		t.Errorf("got %v", err)
	}
}

func TestInt64(t *testing.T) {
	for _, in := range []any{int64(math.MaxInt64), json.Number("9223372036854775807"), "9223372036854775807"} {
		got, err := UnmarshalInt64(in)
		if err != nil || got != math.MaxInt64 {
			t.Errorf("%#v: %d, %v", in, got, err)
		}
	}
	for _, in := range []any{"9223372036854775808", json.Number("1.5"), "", "1e3", true, nil} {
		if _, err := UnmarshalInt64(in); runtime.CodeOf(err) != runtime.CodeInvalidInput {
			t.Errorf("%#v: got %v, want INVALID_INPUT", in, err)
		}
	}
	if got := written(MarshalInt64(math.MinInt64)); got != "-9223372036854775808" {
		t.Errorf("got %s", got)
	}
}

func TestBase64IsExact(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	back, err := UnmarshalBase64(strings.Trim(written(MarshalBase64(all)), `"`))
	if err != nil || string(back) != string(all) {
		t.Errorf("%v, %v", back, err)
	}
	empty, err := UnmarshalBase64("")
	if err != nil || empty == nil || len(empty) != 0 {
		t.Errorf("an empty file is %#v, %v: it must differ from none", empty, err)
	}
	for _, in := range []any{"YQ", "a b=", "-_8=", 12, nil} {
		if _, err := UnmarshalBase64(in); runtime.CodeOf(err) != runtime.CodeInvalidInput {
			t.Errorf("%#v: got %v, want INVALID_INPUT", in, err)
		}
	}
}

func TestIDsMayBeNumbers(t *testing.T) {
	for in, want := range map[any]string{"python": "python", json.Number("10"): "10", int64(10): "10"} {
		if got, err := UnmarshalID(in); err != nil || got != want {
			t.Errorf("%#v: %q, %v", in, got, err)
		}
	}
	for _, in := range []any{nil, 1.5, json.Number("1.5"), true} {
		if _, err := UnmarshalID(in); runtime.CodeOf(err) != runtime.CodeInvalidInput {
			t.Errorf("%#v: got %v, want INVALID_INPUT", in, err)
		}
	}
}
