package house

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestLeftoversOfTasksAreFound, whichever program they run.
func TestLeftoversOfTasksAreFound(t *testing.T) {
	n := &Nomad{dir: t.TempDir()}
	task := filepath.Join(n.dir, "client", "alloc", "a1", "runner")
	if err := os.MkdirAll(task, 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, found := range map[string]bool{task: true, n.dir: false} {
		left := exec.CommandContext(t.Context(), "sleep", "60")
		left.Dir = dir
		if err := left.Start(); err != nil {
			t.Fatal(err)
		}
		what := n.belongs(fmt.Sprintf("/proc/%d", left.Process.Pid), nil)
		_ = left.Process.Kill()
		_ = left.Wait()
		if (what != "") != found {
			t.Errorf("in %s: %q", dir, what)
		}
	}
}
