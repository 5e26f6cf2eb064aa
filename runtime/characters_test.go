package runtime

import (
	"testing"

	"pgregory.net/rapid"
)

// TestAnySplitGivesTheSameText: however output is split, and whatever the other stream prints in
// between, each stream's text is that of all its bytes.
func TestAnySplitGivesTheSameText(t *testing.T) {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"é", "€", "😀", "a", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\x80", "\xff", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\xaf"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 6), func(b []byte) string { return string(b) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		var c Characters
		var left, texts [2]string
		for i := range left {
			for _, p := range rapid.SliceOfN(piece, 0, 12).Draw(t, "output") {
				left[i] += p
			}
		}
		want := [2]string{Text([]byte(left[0])), Text([]byte(left[1]))}
		for left != [2]string{} {
			i := rapid.IntRange(0, 1).Draw(t, "stream")
			n := min(len(left[i]), rapid.IntRange(0, 5).Draw(t, "bytes"))
			texts[i] += c.Text(Stream(i+1), []byte(left[i][:n]))
			left[i] = left[i][n:]
			if len(c[i]) > 3 {
				t.Fatalf("%q is held", c[i])
			}
		}
		for i, rest := range c {
			if texts[i] += Text([]byte(rest)); texts[i] != want[i] {
				t.Fatalf("%q, want %q", texts[i], want[i])
			}
		}
	})
}
