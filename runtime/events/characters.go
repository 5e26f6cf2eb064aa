package events

import (
	"slices"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
)

// Characters holds, by stream, the first bytes of characters whose rest hasn't arrived yet. A program may
// print a character in pieces, each of which is stored on its own.
type Characters map[runtime.Stream][]byte

// Whole returns the bytes up to the last complete character, and keeps the rest for the next call.
func (c Characters) Whole(stream runtime.Stream, data []byte) []byte {
	if begun := c[stream]; len(begun) > 0 {
		data = append(begun, data...)
	}
	end := len(data)
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if utf8.RuneStart(data[len(data)-n]) {
			if !utf8.FullRune(data[len(data)-n:]) {
				end -= n
			}
			break
		}
	}
	c[stream] = slices.Clone(data[end:])
	return data[:end]
}
