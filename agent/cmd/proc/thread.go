package proc

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// StartThread calls f on a thread of its own, and doesn't wait. The thread ends with f, unless f returns
// true, which says that the thread is as it was before. So no other code runs with the namespaces, the
// control groups or the rights that f gave to the thread. It is safe for concurrent use.
//
// The thread is never the process's first one, for three reasons. /proc/PID shows the namespaces and
// control groups of that one. A change of its rights clears the parent-death signal. Go can't end it.
func StartThread(f func() (unchanged bool)) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			if f() {
				runtime.UnlockOSThread()
			}
			return // if it is still locked, the thread ends
		}
		other := make(chan struct{})
		StartThread(func() bool { // on another thread, because this one is locked until it runs
			close(other)
			return f()
		})
		<-other
		runtime.UnlockOSThread()
	}()
}

// OnThread calls f on a thread of its own, which ends with f, and returns after that. See StartThread.
// If f ends its goroutine (runtime.Goexit), OnThread returns as well.
func OnThread(f func()) {
	ended := make(chan struct{})
	StartThread(func() bool {
		defer close(ended)
		f()
		return false
	})
	<-ended
}
