package executor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCachesAddVariablesThatACommandLacks(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	for path, text := range map[string]string{
		filepath.Join(dir, "a.env"): "A=1 2\nB=3\nnot a variable\nC=\x00\n\nD=",
		filepath.Join(dir, "b.env"): strings.Repeat("x", maxVariables) + "\nE=1\n",
		filepath.Join(dir, "other"): "F=1\n",
		secret:                      "G=1\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(dir, "c.env")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "d.env"), 0o600); err != nil { // a read would wait
		t.Fatal(err)
	}
	own := []string{"B=own", "H=1"}
	got := withVariables(own, ofCaches(dir))
	if want := []string{"B=own", "H=1", "A=1 2", "D="}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := ofCaches(filepath.Join(dir, "nowhere")); len(got) > 0 {
		t.Errorf("%q", got)
	}
}
