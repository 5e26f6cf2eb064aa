package transport

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// Each byte is tested at each position among plain ones.
func TestPlainFindsEveryEscapedByte(t *testing.T) {
	for at := range 8 {
		for value := range 256 {
			text := bytes.Repeat([]byte("~"), 8)
			text[at] = byte(value)
			quoted := value < ' ' || value >= 0x80 || value == '"' || value == '\\'
			var eight uint64
			for i, b := range text {
				eight |= uint64(b) << (8 * i)
			}
			if plain(eight) == quoted {
				t.Errorf("%q: plain is %v", text, !quoted)
			}
		}
	}
}

// BenchmarkAppendString measures a chunk of text in lines.
func BenchmarkAppendString(b *testing.B) {
	text := bytes.Repeat([]byte("0123456789 0123456789 0123456789 0123456789 0123456789 0123456789\n"), 500)
	to := make([]byte, 0, 2*len(text))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		to = AppendString(to[:0], text)
	}
}

func FuzzAppendString(f *testing.F) {
	for _, seed := range []string{"", "plain", "a\xffb", "\xe2\x82", "\x00\x1b[31m\"\\\n\r\t\x7f", "日本語 🦀", "\xed\xa0\x80", "\u2028\ufffd"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		text := AppendString([]byte("x"), in)[1:]
		if int64(len(text)) > StringBytes(in) {
			t.Fatalf("%q became %d bytes, of at most %d", in, len(text), StringBytes(in))
		}
		var back string
		if err := json.Unmarshal(text, &back); err != nil || !utf8.Valid(text) {
			t.Fatalf("%q became %q: %v", in, text, err)
		}
		var want strings.Builder
		for _, r := range string(in) { // one U+FFFD for each invalid byte
			want.WriteRune(r)
		}
		if back != want.String() {
			t.Fatalf("%q came back as %q", in, back)
		}
	})
}
