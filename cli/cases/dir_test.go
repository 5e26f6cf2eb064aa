package cases

import (
	"errors"
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
		{Name: "b", Input: client.CaseInput{Args: []string{}, ExpectedOutputBase64: []byte("x")}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for says, files := range map[string]map[string]string{
		"0 cases":    {"README": ""},
		"2.out":      {"1.in": "", "2.out": ""},
		"1001 cases": nil,
	} {
		if files == nil {
			files = map[string]string{}
			for i := range 1001 {
				files[fmt.Sprint(i, ".in")] = ""
			}
		}
		if _, err := Read(write(t, files)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	large := write(t, map[string]string{"1.in": "", "1.out": "", "2.in": "", "2.out": ""})
	if err := errors.Join(os.Truncate(filepath.Join(large, "1.out"), 16<<20), os.Truncate(filepath.Join(large, "2.out"), 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(large); err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("too much expected output: got %v, want the limit of 16 MiB", err)
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
