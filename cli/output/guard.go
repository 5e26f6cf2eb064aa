package output

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// OnTerminal reports whether a stream of this process is a terminal.
func OnTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// A Guard writes the output of other people's programs to a terminal. It passes text, line ends, tabs,
// carriage returns, and colours. It shows all other control characters, invisible characters that mislead a
// reader, and invalid bytes as escapes, such as \x1b. However the output is divided into writes, it writes
// the same. Close it.
type Guard struct {
	out      io.Writer
	held     []byte // the beginning of a character or of a sequence of colours
	before   rune   // last character written
	coloured bool
}

// Guarded returns a Guard if out is a terminal, unless raw. Otherwise it returns a writer that changes no
// byte.
func Guarded(out io.Writer, raw bool) io.WriteCloser {
	if raw || !OnTerminal(out) {
		return exact{out}
	}
	return &Guard{out: out}
}

// An exact writer changes no byte.
type exact struct{ io.Writer }

func (exact) Close() error { return nil }

// mostColours bounds a sequence of colours.
const mostColours = 40

// Write writes all of p, except the beginning of a character or sequence at its end, which waits for its
// rest.
func (g *Guard) Write(p []byte) (int, error) {
	shown, left := g.shown(slices.Concat(g.held, p), false)
	g.held = bytes.Clone(left)
	if _, err := g.out.Write(shown); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what waits for its rest, and ends colours.
func (g *Guard) Close() error {
	shown, _ := g.shown(g.held, true)
	g.held = nil
	if g.coloured {
		shown = append(shown, "\x1b[m"...)
	}
	_, err := g.out.Write(shown)
	return err
}

// shown returns data for a terminal, and what waits for its rest; nothing waits at the end.
func (g *Guard) shown(data []byte, end bool) (shown, left []byte) {
	for len(data) > 0 {
		if size, more := colours(data); size > 0 {
			shown, data, g.coloured = append(shown, data[:size]...), data[size:], true
			continue
		} else if more && !end {
			return shown, data
		}
		if !end && !utf8.FullRune(data) {
			return shown, data
		}
		r, size := utf8.DecodeRune(data)
		after, next := utf8.DecodeRune(data[size:])
		joiner := r == 0x200c || r == 0x200d
		if joiner && !end && (next == 0 || !utf8.FullRune(data[size:])) {
			return shown, data // whether it misleads depends on the next character
		}
		switch {
		case r == utf8.RuneError && size == 1:
			shown = fmt.Appendf(shown, `\x%02x`, data[0])
		case r == '\n', r == '\t', r == '\r':
			shown = append(shown, data[0])
		case r < ' ' || r == 0x7f:
			shown = fmt.Appendf(shown, `\x%02x`, r)
		case r >= 0x80 && r < 0xa0, misleads(g.before, r, after):
			shown = fmt.Appendf(shown, `\u%04x`, r)
		default:
			shown = append(shown, data[:size]...)
		}
		g.before, data = r, data[size:]
	}
	return shown, nil
}

// colours returns the length of the sequence of colours at the beginning of data, 0 if there is none. more
// reports that data may be the beginning of one. Concealed and blinking text are no colours.
func colours(data []byte) (size int, more bool) {
	if data[0] != 0x1b {
		return 0, false
	}
	for i := 1; i < len(data) && i < mostColours; i++ {
		switch c := data[i]; {
		case i == 1 && c == '[':
		case i > 1 && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		case i > 1 && c == 'm' && !hides(data[2:i]):
			return i + 1, false
		default:
			return 0, false
		}
	}
	return 0, len(data) < mostColours
}

// hides reports whether the parameters of a sequence of colours contain concealed (8) or blinking text (5,
// 6). Terminals differ in whether a colon ends a parameter, as a semicolon does.
func hides(parameters []byte) bool {
	return anyHides(bytes.Split(parameters, []byte(";"))) || anyHides(bytes.Split(bytes.ReplaceAll(parameters, []byte(":"), []byte(";")), []byte(";")))
}

// anyHides is hides for the single parameters; an empty one counts as 0. In 38;5;N and 48;5;N, a 5
// selects a palette.
func anyHides(all [][]byte) bool {
	for i := 0; i < len(all); i++ {
		switch n := string(bytes.TrimLeft(all[i], "0")); n {
		case "5", "6", "8":
			return true
		case "38", "48", "58":
			switch {
			case i+1 < len(all) && string(bytes.TrimLeft(all[i+1], "0")) == "5":
				i += 2
			case i+1 < len(all) && string(bytes.TrimLeft(all[i+1], "0")) == "2":
				i += 4
			}
		}
	}
	return false
}

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
