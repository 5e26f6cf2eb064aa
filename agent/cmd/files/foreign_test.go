package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/need"
)

// Many threads open files with a command's rights concurrently, so that the process's first thread
// would be among them. Afterwards all remaining threads have root's rights.
func TestThreadsRegainTheirRights(t *testing.T) {
	need.Sandboxes(t) // and root, whose rights are given up
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() (int, error) { return unix.Open(secret, unix.O_RDONLY|unix.O_CLOEXEC, 0) }
	const atOnce = 64 // more threads than idle ones
	var inside, all sync.WaitGroup
	inside.Add(atOnce)
	for range atOnce {
		all.Go(func() {
			fd, err := asCommand(func() (int, error) {
				inside.Done()
				inside.Wait()
				if unix.Gettid() == unix.Getpid() {
					t.Error("the process's first thread has a command's rights")
				}
				return open()
			})
			if fd != -1 || !errors.Is(err, unix.EACCES) {
				t.Errorf("a file of root's alone is opened: %d, %v", fd, err)
			}
		})
	}
	all.Wait()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		status, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/status")
		if err != nil {
			continue // it ended
		}
		for _, line := range strings.Split(string(status), "\n") {
			if kind, ids, _ := strings.Cut(line, ":"); (kind == "Uid" || kind == "Gid") && strings.TrimSpace(ids) != "0\t0\t0\t0" {
				t.Errorf("thread %s is left as %s", thread.Name(), line)
			}
		}
	}
	fd, err := open()
	if err != nil {
		t.Fatalf("root can't open it: %v", err)
	}
	_ = unix.Close(fd)
}
