package output

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func guarded(pieces ...string) string {
	var out bytes.Buffer
	g := &Guard{out: &out}
	for _, p := range pieces {
		_, _ = io.WriteString(g, p)
	}
	_ = g.Close()
	return out.String()
}

func TestGuardShowsWhatControlsATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"é€😀 \t50%\r100%\r\n":                    "é€😀 \t50%\r100%\r\n",
		"\x1b]52;c;aGk=\a\x1b[2J\u202e":          `\x1b]52;c;aGk=\x07\x1b[2J\u202e`,
		"\x1b]0;title\x1b\\":                     `\x1b]0;title\x1b\`,
		"\x1b[31mred\x1b[0m":                     "\x1b[31mred\x1b[0m\x1b[m",
		"\x1b[38;5;8mgrey\x1b[38;2;5;6;8m":       "\x1b[38;5;8mgrey\x1b[38;2;5;6;8m\x1b[m",
		"\x1b[38;5;;8mhidden":                    `\x1b[38;5;;8mhidden`,
		"\x1b[38;2;1;2;;8mhidden":                `\x1b[38;2;1;2;;8mhidden`,
		"\x1b[38:5;8mhidden":                     `\x1b[38:5;8mhidden`,
		"\x1b[38:5:8mgrey":                       "\x1b[38:5:8mgrey\x1b[m",
		"\x1b[48:5:;8mhidden":                    `\x1b[48:5:;8mhidden`,
		"\x1b[;1;;31mred":                        "\x1b[;1;;31mred\x1b[m",
		"\x1b[8mhidden":                          `\x1b[8mhidden`,
		"\x1b[1;08mhidden":                       `\x1b[1;08mhidden`,
		"\x1b[>4;2m\x1b[?25l":                    `\x1b[>4;2m\x1b[?25l`,
		"\u009b2J\x9b2J\b\x7f":                   `\u009b2J\x9b2J\x08\x7f`,
		"a\u200bb\u2066c\ufeff\U000e0041":        `a\u200bb\u2066c\ufeff\ue0041`,
		"👩\u200d🚀 a\u200db":                      `👩` + "\u200d" + `🚀 a\u200db`,
		"\xe2\x82":                               `\xe2\x82`,
		"\x1b[" + strings.Repeat("1;", 30) + "m": `\x1b[` + strings.Repeat("1;", 30) + "m",
		"\x1b":                                   `\x1b`,
	} {
		if got := guarded(in); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
}

// TestGuardedOutputIsTheSameHoweverItIsDivided also finds bytes that control a terminal.
func TestGuardedOutputIsTheSameHoweverItIsDivided(t *testing.T) {
	part := rapid.OneOf(rapid.SampledFrom([]string{"\x1b", "[", "31", ";", "m", "8", "\u200d", "👩", "\u202e", "\u009b", "\xe2", "\x80", "\r", "\n", "a", "]0;", "\a"}),
		rapid.Map(rapid.Byte(), func(b byte) string { return string([]byte{b}) }))
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(part, 0, 20).Draw(t, "parts")
		whole := guarded(strings.Join(parts, ""))
		if got := guarded(parts...); got != whole {
			t.Fatalf("%q in parts, %q in one", got, whole)
		}
		for i := 0; i < len(whole); {
			size, _ := colours([]byte(whole[i:]))
			if c := whole[i]; size == 0 && (c < ' ' && !strings.ContainsRune("\r\n\t", rune(c)) || c == 0x7f) {
				t.Fatalf("%q has a control character", whole)
			}
			i += max(1, size)
		}
	})
}
