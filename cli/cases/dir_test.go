package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/client"
)

func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCasesOfADirectory(t *testing.T) {
	dir := write(t, map[string]string{
		"10.in": "\x00\xff", "2.in": "", "2.args": "a b\r\n\nc\n", "b.args": "", "b.out": "x", "a.sample.in": "y", "README.md": "", ".in": "hidden", "in": "",
	})
	got, err := Read(dir)
	want := []Case{
		{Name: "2", Input: client.CaseInput{StdinBase64: []byte{}, Args: []string{"a b", "", "c"}}},
		{Name: "10", Input: client.CaseInput{StdinBase64: []byte("\x00\xff")}},
		{Name: "a.sample", Input: client.CaseInput{StdinBase64: []byte("y")}},
		{Name: "b", Input: client.CaseInput{Args: []string{}}, Wanted: []byte("x")},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for says, files := range map[string]map[string]string{
		"0 cases":              {"README": ""},
		"needs one of them":    {"1.in": "", "2.out": ""},
		"1001 cases, but must": nil,
	} {
		if files == nil {
			files = map[string]string{}
			for i := range 1001 {
				files[fmt.Sprint(i, ".in")] = ""
			}
		}
		if _, err := Read(write(t, files)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if _, err := Read(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that isn't there has cases")
	}
}

func TestNumbersAreSortedByTheirValue(t *testing.T) {
	sorted := []string{"", "1", "01", "2", "10", "10a", "10b", "a", "a1", "a2b1", "a2b3", "a10", "b"}
	for i, a := range sorted {
		for j, b := range sorted {
			if got := compareNames(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
}

func TestDifference(t *testing.T) {
	for _, test := range []struct{ wanted, got, says string }{
		{"a\nb\n", "a\nb\n", ""},
		{"a\nb", "a \r\nb\t\n\n\n", ""},
		{"", "\n", ""},
		{"a\nb\n", "a\n", `line 2 is missing: "b"`},
		{"a\n", "a\n\nb\n", `line 2 is unexpected: ""`},
		{"a\nb", "a\nc", `line 2 is "c", not "b"`},
		{" a", "a", `line 1 is "a", not " a"`},
		{"a\n\nb", "a\nb", `line 2 is "b", not ""`},
		{"x", "\x1b\xff", `line 1 is "·�", not "x"`},
		{strings.Repeat("a", 100), "", `line 1 is missing: "` + strings.Repeat("a", 60) + `"…`},
	} {
		if got := difference([]byte(test.wanted), []byte(test.got)); got != test.says {
			t.Errorf("%q and %q: %s, want %s", test.wanted, test.got, got, test.says)
		}
	}
}
