package proc_test

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/test/need"
)

// Every thread that f left in another namespace has ended, and the process's first thread, which
// can't end, was never one of them.
func TestOtherThreadsKeepTheirState(t *testing.T) {
	need.Sandboxes(t)
	of := func(whose string) string {
		name, err := os.Readlink("/proc/" + whose + "/ns/uts")
		if err != nil {
			t.Error(err)
		}
		return name
	}
	before := of("self")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				proc.OnThread(func() {
					if now := of("thread-self"); now != before {
						t.Errorf("it begins in %s, not %s", now, before)
					}
					if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil || of("thread-self") == before {
						t.Errorf("it changed nothing: %v", err)
					}
				})
			}
		})
	}
	all.Wait()
	if now := of("self"); now != before {
		t.Errorf("the first thread is in %s, not %s", now, before)
	}
	proc.OnThread(runtime.Goexit)
}
