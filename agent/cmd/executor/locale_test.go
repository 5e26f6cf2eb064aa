package executor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/test/need"
)

func TestLacksLocale(t *testing.T) {
	for _, test := range []struct {
		name  string
		files []string
		lacks bool
	}{
		{"static programs only", nil, false},
		{"musl", []string{"lib/ld-musl-x86_64.so.1"}, false},
		{"glibc", []string{"lib64/ld-linux-x86-64.so.2"}, true},
		{"glibc on another machine", []string{"lib/ld-linux-aarch64.so.1"}, true},
		{"glibc with it", []string{"lib64/ld-linux-x86-64.so.2", "usr/lib/locale/C.utf8/LC_CTYPE"}, false},
		{"Debian 11", []string{"lib64/ld-linux-x86-64.so.2", "usr/lib/locale/C.UTF-8/LC_CTYPE"}, false},
	} {
		root := t.TempDir()
		for _, file := range test.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := lacksLocale(root); got != test.lacks {
			t.Errorf("%s: got %t, want %t", test.name, got, test.lacks)
		}
	}
}

// TestLacksLocaleReadsArchives has localedef write them, as on Red Hat's systems.
func TestLacksLocaleReadsArchives(t *testing.T) {
	const ready = "/usr/lib/locale/C.utf8"
	_, missing := os.Stat(ready)
	if _, err := exec.LookPath("localedef"); errors.Join(missing, err) != nil {
		need.Lacks(t, "%v", errors.Join(missing, err))
	}
	for name, lacks := range map[string]bool{"C.utf8": false, "de_DE.utf8": true} {
		root := t.TempDir()
		for _, dir := range []string{"lib64", "usr/lib/locale", name} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, "lib64/ld-linux-x86-64.so.2"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(root, name), os.DirFS(ready)); err != nil {
			t.Fatal(err)
		}
		add := exec.Command("localedef", "--prefix="+root, "--add-to-archive", filepath.Join(root, name))
		if out, err := add.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := lacksLocale(root); got != lacks {
			t.Errorf("an archive with %s: %t, want %t", name, got, lacks)
		}
	}
}
