package output

import "unicode"

// invisible has the characters that show nothing themselves and change how the text around them reads:
// directions (as in "Trojan Source"), joiners, tags, fillers.
var invisible = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x00ad, Hi: 0x00ad, Stride: 1}, // soft hyphen
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, // grapheme joiner
		{Lo: 0x061c, Hi: 0x061c, Stride: 1}, // Arabic letter mark
		{Lo: 0x115f, Hi: 0x1160, Stride: 1}, // Hangul fillers
		{Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, // Khmer vowels without a sign
		{Lo: 0x180b, Hi: 0x180f, Stride: 1}, // Mongolian selectors
		{Lo: 0x200b, Hi: 0x200f, Stride: 1}, // of no width, marks of direction
		{Lo: 0x2028, Hi: 0x202e, Stride: 1}, // separators, embeddings, overrides
		{Lo: 0x2060, Hi: 0x206f, Stride: 1}, // joiner, invisible operators, isolates
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, // Hangul filler
		{Lo: 0xfeff, Hi: 0xfeff, Stride: 1}, // byte order mark
		{Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, // Hangul filler
		{Lo: 0xfff9, Hi: 0xfffb, Stride: 1}, // annotations
	},
	R32: []unicode.Range32{
		{Lo: 0x1bca0, Hi: 0x1bca3, Stride: 1}, // shorthand
		{Lo: 0x1d173, Hi: 0x1d17a, Stride: 1}, // music
		{Lo: 0xe0000, Hi: 0xe0fff, Stride: 1}, // tags, selectors
	},
	LatinOffset: 1,
}

// misleads reports whether a character between two others is invisible and can mislead a reader. A
// joiner within a script that needs it, or between emoji, doesn't mislead: its effect is visible.
func misleads(before, r, after rune) bool {
	if r == 0x200c || r == 0x200d {
		return before < 0x80 || after < 0x80 || unicode.Is(invisible, before) || unicode.Is(invisible, after)
	}
	return unicode.Is(invisible, r)
}
