package runtime

import (
	"strings"
	"unicode/utf8"
)

// Characters holds, by stream, the first bytes of a character whose rest hasn't arrived yet. A program may
// print a character in pieces, each of which is stored and sent on its own. It is comparable.
type Characters [2]string

// Add adds a stream's next output. Add returns the held bytes that data continues, and how many bytes at the
// end it holds from now on.
func (c *Characters) Add(stream Stream, data []byte) (begun string, cut int) {
	begun = c[stream-1]
	all := data
	if len(data) < utf8.UTFMax {
		all = append([]byte(begun), data...)
	}
	cut = Unfinished(all)
	c[stream-1] = string(all[len(all)-cut:])
	return begun, cut
}

// Text adds a stream's next output, and returns the text up to the last whole character.
func (c *Characters) Text(stream Stream, data []byte) string {
	begun, cut := c.Add(stream, data)
	all := append([]byte(begun), data...)
	return Text(all[:len(all)-cut])
}

// Unfinished returns how many bytes at the end of data begin a character whose rest is missing.
func Unfinished(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if last := data[len(data)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Text returns output as valid UTF-8, with U+FFFD for each invalid byte.
func Text(data []byte) string {
	if utf8.Valid(data) {
		return string(data)
	}
	var b strings.Builder
	for _, r := range string(data) {
		b.WriteRune(r)
	}
	return b.String()
}
