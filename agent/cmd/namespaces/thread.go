package namespaces

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread calls f on a thread of its own, which ends with f, and returns after that. So no other code
// runs with the namespaces or the user that f left the thread with. It is safe for concurrent use.
// If f ends its goroutine (runtime.Goexit), OnThread returns as well.
//
// The thread is never the process's first one: Go can't end that thread and would keep it changed,
// and /proc/self shows it.
func OnThread(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // still locked, so the thread ends
		}
		OnThread(f) // on another thread, because this one stays locked meanwhile
		runtime.UnlockOSThread()
	}()
	<-ended
}
