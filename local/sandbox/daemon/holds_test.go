package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rockpool/rockpool/local/uids"
)

// TestReleaseAfterAKill creates what a helper leaves if it is killed at any step of take. The next
// helper must release it, or it doesn't start.
func TestReleaseAfterAKill(t *testing.T) {
	h := holds{t.TempDir(), &uids.Ranges{Dir: t.TempDir(), Count: 1}}
	for i, row := range []struct {
		name  string
		files map[string]string
	}{
		{"no file", nil},
		{"empty root file", map[string]string{rootName: ""}},
		{"root file", map[string]string{rootName: "/root"}},
		{"root file, empty slot file", map[string]string{rootName: "/root", slotName: ""}},
		{"both files", map[string]string{rootName: "/root", slotName: "0"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			id := strconv.Itoa(i)
			dir := filepath.Join(h.dir, id)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if _, err := h.ranges.Take(dir); err != nil {
				t.Fatal(err)
			}
			for name, text := range row.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := h.all(); err != nil {
				t.Error(err)
			}
			if err := h.release(id); err != nil {
				t.Error(err)
			}
			if there, err := h.has(id); there || err != nil {
				t.Errorf("it is there: %t, %v", there, err)
			}
		})
	}
	if _, err := h.take("b", "/root"); err != nil {
		t.Errorf("the range isn't free: %v", err)
	}
}
