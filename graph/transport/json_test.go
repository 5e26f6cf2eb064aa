package transport

import (
	"bytes"
	"testing"
)

// TestPlain has every byte at every place among plain ones.
func TestPlain(t *testing.T) {
	for place := range 8 {
		for value := range 256 {
			text := bytes.Repeat([]byte("~"), 8)
			text[place] = byte(value)
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

// BenchmarkAppendString is a chunk of text in lines.
func BenchmarkAppendString(b *testing.B) {
	text := bytes.Repeat([]byte("0123456789 0123456789 0123456789 0123456789 0123456789 0123456789\n"), 500)
	to := make([]byte, 0, 2*len(text))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		to = AppendString(to[:0], text)
	}
}
