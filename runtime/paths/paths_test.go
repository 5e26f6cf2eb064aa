package paths

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// odd are bytes that are likely to break a form: parts of U+FFFD, of other runes, and digits after
// them.
var odd = []byte{0xef, 0xbf, 0xbd, 0xff, 0xfe, 0x80, 0xc3, 0xa9, 0xed, 0xa0, 'f', 'e', '0', '*', '~', '\\', '-', '.', ' ', '\n'}

func TestTextsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := string(rapid.OneOf(rapid.SliceOf(rapid.SampledFrom(odd)), rapid.SliceOf(rapid.Byte())).Draw(t, "raw"))
		if back, err := Bytes(Text(raw)); err != nil || back != raw {
			t.Fatalf("%q became %q, and then %q, %v", raw, Text(raw), back, err)
		}
	})
}

// TestNoTwoTextsNameOneFile: a text is refused, or is the one that Text returns.
func TestNoTwoTextsNameOneFile(t *testing.T) {
	pieces := []string{"\uFFFD", "ff", "fe", "c3", "a9", "ef", "bf", "bd", "61", "FF", "é", "a", "/", "\xff"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(pieces)).Draw(t, "text"), "")
		if raw, err := Bytes(text); err == nil && Text(raw) != text {
			t.Fatalf("%q is %q, whose text is %q", text, raw, Text(raw))
		}
	})
}

// TestGivenPathsKeepTheirBytes: the bytes of a name, and its text, are the same file.
func TestGivenPathsKeepTheirBytes(t *testing.T) {
	for given, want := range map[string]string{"": "", "a/é": "a/é", "inv\xfe": "inv\uFFFDfe", "inv\uFFFDfe": "inv\uFFFDfe", "\uFFFD": "\uFFFDef\uFFFDbf\uFFFDbd"} {
		if got := Given(given); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"*": "*", "~": "~", "-rf": "-rf", `a\b`: `a\b`, "a//b/": "a//b/", "./a": "./a", "inv\uFFFDff.txt": "inv\xff.txt", "\uFFFDef\uFFFDbf\uFFFDbd": "\uFFFD",
		strings.Repeat("x", 255): strings.Repeat("x", 255), strings.Repeat("\uFFFDff", 255): strings.Repeat("\xff", 255), strings.Repeat("x/", 2047) + "y": strings.Repeat("x/", 2047) + "y",
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q is %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "a\x00", "\xff", "\uFFFD", "a\uFFFDb", "\uFFFDFF", "\uFFFDf", "\uFFFD61", "\uFFFDc3\uFFFDa9", "\uFFFD00",
		strings.Repeat("x", 256), strings.Repeat("\uFFFDff", 256), strings.Repeat("x/", 2048),
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
}

func TestResolve(t *testing.T) {
	for p, want := range map[string]string{"a": "/w/a", "a/../b": "/w/b", "/a//b/": "/a/b", "..": "/", "../../..": "/", ".": "/w", "a/": "/w/a"} {
		if got := Resolve("/w", p); got != want {
			t.Errorf("%q is %q, want %q", p, got, want)
		}
	}
	for p, want := range map[string]bool{"a": false, "a/": true, "a/.": true, "a/..": true, ".": true, "..": true, "/": true, ".a": false, "a..": false} {
		if IsDirectory(p) != want {
			t.Errorf("%q is a directory: %v", p, !want)
		}
	}
}
