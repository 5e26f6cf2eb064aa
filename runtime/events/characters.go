package events

import (
	"slices"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
)

// Characters are the beginnings of those whose rest hasn't come yet, by stream: a program can
// print a character in pieces, each of which is kept as it came.
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
