package session

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// says returns the message about the first difference; "" means none.
func says(t testing.TB, how runtime.Comparison, expected, output io.Reader) string {
	t.Helper()
	d, err := compareOutput(how, expected, output)
	if err != nil {
		t.Fatal(err)
	}
	if d == nil {
		return ""
	}
	return describeDifference(*d)
}

func TestFirstDifference(t *testing.T) {
	const exact, trimmed, tokens, numbers = runtime.CompareExact, runtime.CompareTrimmed, runtime.CompareTokens, runtime.CompareNumbers
	long := strings.Repeat("a", 1000)
	for _, test := range []struct {
		mode                   runtime.CompareMode
		expected, output, says string
	}{
		{exact, "a\nb\n", "a\nb\n", ""},
		{exact, "", "", ""},
		{exact, "a", "a\n", `line 1: "a\n" instead of "a"`},
		{exact, "a\n", "a\n\n", `line 2: "\n" is unexpected`},
		{exact, "a\nb", "a\n", `line 2: "b" is missing`},
		{exact, "a \n", "a\n", `line 1: "a\n" instead of "a \n"`},
		{exact, "\x00\xff", "\x00\xfe", `line 1: "\x00�" instead of "\x00�"`},

		{trimmed, "a\nb\n", "a\nb\n", ""},
		{trimmed, "a\nb", "a \r\nb\t\n\n\n", ""},
		{trimmed, "", "\n \n\t\r\n", ""},
		{trimmed, "a\n\n \n", "a", ""},
		{trimmed, "a\nb\n", "a\n", `line 2: "b" is missing`},
		{trimmed, "a\n\n\nb", "a", `line 4: "b" is missing`},
		{trimmed, "a\n", "a\n\nb\n", `line 3: "b" is unexpected`},
		{trimmed, "a\nb", "a\nc", `line 2: "c" instead of "b"`},
		{trimmed, " a", "a", `line 1: "a" instead of " a"`},
		{trimmed, "a", "a b", `line 1: "a b" instead of "a"`},
		{trimmed, "a  ", "a  b", `line 1: "a  b" instead of "a  "`},
		{trimmed, "a\n\nb", "a\nb", `line 2: "b" instead of ""`},
		{trimmed, "a\n", "a\n\f", `line 2: "\f" is unexpected`},
		{trimmed, "x", "\x1b\xff", `line 1: "\x1b�" instead of "x"`},
		{trimmed, long, "", `line 1: "` + long[:96] + `…" is missing`},
		{trimmed, long + "b" + long, long + "c", `line 1: "…` + long[:32] + `c" instead of "…` + long[:32] + "b" + long[:63] + `…"`},
		{trimmed, strings.Repeat("é", 100), strings.Repeat("é", 20) + "e", `line 1: "…` + strings.Repeat("é", 16) + `e" instead of "…` + strings.Repeat("é", 48) + `…"`},

		{tokens, "1 2\n3", " 1\n\n2\t3 \n", ""},
		{tokens, "", " \n", ""},
		{tokens, "1 2 3", "1 2", `line 1: "3" is missing`},
		{tokens, "1", "1\n2", `line 2: "2" is unexpected`},
		{tokens, "1 1.0", "1\n1.00", `line 2: "1.00" instead of "1.0"`},
		{tokens, long + "b", long + "b", ""},
		{tokens, long + "b", long + "c", `line 1: "…` + long[896:] + `c" instead of "…` + long[896:] + `b"`},
		{tokens, long[:128] + " a", long[:129], `line 1: "` + long[:128] + `…" instead of "` + long[:128] + `"`},

		{numbers, "1 2.5 x", "1.0001 2.50 x", ""},
		{numbers, "1000000", "1000900", ""}, // relative
		{numbers, "0", "0.0009", ""},        // absolute
		{numbers, "1", "1.0011", `line 1: "1.0011" instead of "1"`},
		{numbers, "x", "1", `line 1: "1" instead of "x"`},
		{numbers, "nan inf 0x1", "nan inf 0x1", ""},
		{numbers, "0x10", "16", `line 1: "16" instead of "0x10"`},
		{numbers, "1e999", "2e999", `line 1: "2e999" instead of "1e999"`},
		{numbers, long[:128] + "1.0", long[:128] + "1.00", `line 1: "…1.00" instead of "…1.0"`},
	} {
		how := runtime.Comparison{Mode: test.mode, Tolerance: 0.001}
		for name, read := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "by byte": iotest.OneByteReader, "with the end": iotest.DataErrReader} {
			if got := says(t, how, read(strings.NewReader(test.expected)), iotest.HalfReader(strings.NewReader(test.output))); got != test.says {
				t.Errorf("%s, %s, %q and %q: %s, want %s", test.mode, name, test.expected, test.output, got, test.says)
			}
		}
	}
}

// equal is a simple judge that holds everything in memory.
func equal(mode runtime.CompareMode, a, b string) bool {
	switch mode {
	case runtime.CompareTrimmed:
		return trimmed(a) == trimmed(b)
	case runtime.CompareTokens:
		return strings.Join(strings.FieldsFunc(a, isSpace), " ") == strings.Join(strings.FieldsFunc(b, isSpace), " ")
	default:
		return a == b
	}
}

func isSpace(r rune) bool { return strings.ContainsRune(wordSpace, r) }

func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, lineSpace)
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// pieces is a reader that returns pieces of given lengths, over and over.
type pieces struct {
	of      io.Reader
	lengths []int
}

func (p *pieces) Read(b []byte) (int, error) {
	n := p.lengths[0]
	p.lengths = append(p.lengths[1:], n)
	return p.of.Read(b[:min(n, len(b))])
}

// TestPiecesNeverChangeTheDifference compares random texts, which are often nearly equal, in random
// pieces, with a simple judge.
func TestPiecesNeverChangeTheDifference(t *testing.T) {
	text := rapid.Custom(func(t *rapid.T) string {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", " ", "\t", "\r", "\n", "\n", "\v", "é", "\xff", strings.Repeat("x", 70), strings.Repeat(" ", 40000), strings.Repeat("long ", 9000)}), 0, 12).Draw(t, "words")
		return strings.Join(words, "")
	})
	same := 0
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]runtime.CompareMode{runtime.CompareExact, runtime.CompareTrimmed, runtime.CompareTokens}).Draw(t, "mode")
		beginning, end := text.Draw(t, "beginning"), text.Draw(t, "end")
		expected := beginning + text.Draw(t, "expected") + end
		output := beginning + text.Draw(t, "output") + end
		if rapid.Bool().Draw(t, "spaced") {
			output = beginning + rapid.SampledFrom([]string{"", " ", "\n", " \n", "\t"}).Draw(t, "space") + end + rapid.SampledFrom([]string{"", " ", "\n", " \n\r\n"}).Draw(t, "trailing")
			expected = beginning + end
		}
		how := runtime.Comparison{Mode: mode}
		whole, err := compareOutput(how, strings.NewReader(expected), strings.NewReader(output))
		if err != nil || (whole == nil) != equal(mode, expected, output) {
			t.Fatalf("%+v, %v", whole, err)
		}
		lengths := rapid.SliceOfN(rapid.IntRange(1, 40000), 1, 5)
		parts, err := compareOutput(how, &pieces{strings.NewReader(expected), lengths.Draw(t, "expected pieces")}, &pieces{strings.NewReader(output), lengths.Draw(t, "output pieces")})
		switch {
		case err != nil || (whole == nil) != (parts == nil):
			t.Fatalf("whole %+v, in pieces %+v, %v", whole, parts, err)
		case whole == nil:
			same++
		case describeDifference(*whole) != describeDifference(*parts) || len(describeDifference(*whole)) > 2000:
			t.Fatalf("whole %s, in pieces %s", describeDifference(*whole), describeDifference(*parts))
		}
	})
	if same == 0 {
		t.Error("no two texts were equal")
	}
}

func FuzzCompare(f *testing.F) {
	f.Add("a\nb", "a \nb\n\n", 1, 0.5)
	f.Add("1 2", "1.0 2", 3, 0.0)
	f.Fuzz(func(t *testing.T, expected, output string, mode int, tolerance float64) {
		modes := []runtime.CompareMode{runtime.CompareExact, runtime.CompareTrimmed, runtime.CompareTokens, runtime.CompareNumbers}
		how := runtime.Comparison{Mode: modes[uint(mode)%4], Tolerance: tolerance}
		whole := says(t, how, strings.NewReader(expected), strings.NewReader(output))
		if parts := says(t, how, iotest.OneByteReader(strings.NewReader(expected)), iotest.HalfReader(strings.NewReader(output))); whole != parts {
			t.Errorf("whole %s, in pieces %s", whole, parts)
		}
		if how.Mode != runtime.CompareNumbers && (whole == "") != equal(how.Mode, expected, output) {
			t.Error(whole)
		}
		if expected == output && whole != "" {
			t.Errorf("equal texts: %s", whole)
		}
	})
}

// TestUnreadableTextsAreErrors: neither a match nor a difference.
func TestUnreadableTextsAreErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, mode := range []runtime.CompareMode{runtime.CompareExact, runtime.CompareTrimmed, runtime.CompareTokens, runtime.CompareNumbers} {
		how := runtime.Comparison{Mode: mode}
		short := func() io.Reader { return io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(broken)) }
		var ofExpected expectedError
		if d, err := compareOutput(how, strings.NewReader("a\n"), short()); errors.As(err, &ofExpected) || !errors.Is(err, broken) || d != nil {
			t.Errorf("%s: %v, %v", mode, d, err)
		}
		if d, err := compareOutput(how, short(), strings.NewReader("a\n")); !errors.As(err, &ofExpected) || !errors.Is(err, broken) || d != nil {
			t.Errorf("%s: %v, %v", mode, d, err)
		}
		if _, err := compareOutput(how, strings.NewReader(""), never{}); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("%s: got %v, want %v", mode, err, io.ErrNoProgress)
		}
	}
}

// never is a reader that returns nothing, without an error.
type never struct{}

func (never) Read([]byte) (int, error) { return 0, nil }

// TestMemoryIsBounded compares long texts of one line, of one word, of many lines and of many words.
func TestMemoryIsBounded(t *testing.T) {
	for _, mode := range []runtime.CompareMode{runtime.CompareExact, runtime.CompareTrimmed, runtime.CompareTokens, runtime.CompareNumbers} {
		for _, unit := range []string{"x", " ", "\n", "a ", "a\n"} {
			piece := bytes.Repeat([]byte(unit), 8<<10)
			// Two sides of 32 KiB each, however many bytes are read.
			allocations := testing.AllocsPerRun(1, func() {
				if d, err := compareOutput(runtime.Comparison{Mode: mode}, &repeatedReader{piece, 50}, &repeatedReader{piece, 50}); d != nil || err != nil {
					t.Errorf("%+v, %v", d, err)
				}
			})
			if allocations > 20 {
				t.Errorf("%s of %q: %v allocations", mode, unit, allocations)
			}
		}
	}
}

// repeatedReader is a reader that returns a piece n times.
type repeatedReader struct {
	piece []byte
	n     int
}

func (r *repeatedReader) Read(b []byte) (int, error) {
	if r.n--; r.n < 0 {
		return 0, io.EOF
	}
	return copy(b, r.piece), nil
}
