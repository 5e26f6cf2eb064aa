package runner

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/need"
)

// TestHiddenProcess opens a process in a /proc with hidepid, as another user.
func TestHiddenProcess(t *testing.T) {
	need.Sandboxes(t) // root
	at := filepath.Join(t.TempDir(), "test")
	for dir := filepath.Dir(at); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) { // the user must reach it
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := exec.Command("install", "-m", "755", os.Args[0], at).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	script := `mount -t proc -o hidepid=$1 proc /proc 2>/dev/null || exit 77
		sleep 1000 & S=$!; trap "kill $S" EXIT
		ROCKPOOL_HIDDEN=$S setpriv --reuid 61235 --regid 61235 --clear-groups "$0" -test.run TestHiddenProcessInside -test.v`
	for _, hidepid := range []string{"1", "2"} {
		text, err := exec.Command("unshare", "--mount", "sh", "-c", script, at, hidepid).CombinedOutput()
		if err != nil || !strings.Contains(string(text), "--- PASS: TestHiddenProcessInside") {
			t.Errorf("hidepid=%s: %v: %s", hidepid, err, text)
		}
	}
}

// TestHiddenProcessInside is the part of TestHiddenProcess that runs as that user.
func TestHiddenProcessInside(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("ROCKPOOL_HIDDEN"))
	if err != nil {
		t.Skip("TestHiddenProcess runs it")
	}
	if _, err := openPidfd(pid, 1); !errors.Is(err, errHidden) || !strings.Contains(err.Error(), "hidepid") {
		t.Errorf("got %v, want %v that names hidepid", err, errHidden)
	}
	if _, err := openPidfd(os.Getpid(), 1); errors.Is(err, errHidden) || !strings.Contains(err.Error(), "start time") {
		t.Errorf("another start time: got %v, want an error about it", err)
	}
}
