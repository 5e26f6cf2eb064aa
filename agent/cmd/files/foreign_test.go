package files

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
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
				// The first three are root's: no command may signal, trace or slow down the thread.
				if status, err := os.ReadFile("/proc/thread-self/status"); err == nil && !strings.Contains(string(status), "\nUid:\t0\t0\t0\t1000\nGid:\t0\t0\t0\t1000\n") {
					t.Errorf("its ids are %s", status)
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
			if kind, ids, _ := strings.Cut(line, ":"); (kind == "Uid" || kind == "Gid") && strings.TrimSpace(ids) != "0\t0\t0\t0" || kind == "CapEff" && strings.Trim(ids, "\t0") == "" {
				t.Errorf("thread %s is left as %s", thread.Name(), line)
			}
		}
	}
	fd, err := open()
	if err != nil {
		t.Fatalf("root can't open it: %v", err)
	}
	_ = unix.Close(fd)
	// As on gVisor.
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // it ends with the goroutine
		if !setEffective(unix.SYS_SETRESGID, 1000) || !setEffective(unix.SYS_SETRESUID, 1000) {
			t.Error("the effective ids can't be set")
		}
		if _, err := open(); err != unix.EACCES {
			t.Errorf("with effective ids, a file of root's alone is opened: got %v, want %v", err, unix.EACCES)
		}
		if !setEffective(unix.SYS_SETRESUID, 0) || !setEffective(unix.SYS_SETRESGID, 0) {
			t.Error("the effective ids can't be reset")
		}
		if fd, err := open(); err != nil {
			t.Errorf("root again, and can't open it: %v", err)
		} else {
			_ = unix.Close(fd)
		}
	}()
	<-done
}
