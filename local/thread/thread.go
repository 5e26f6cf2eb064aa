// Package thread runs what changes the operating system's thread it is on.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Do calls f on a thread of its own, which ends with f, and returns after that:
// nobody else finds themselves in the namespaces, or as the user, that f left
// the thread with. It may be called concurrently. Where f ends its goroutine
// (runtime.Goexit), Do returns all the same.
//
// The thread is never the process's first. Go can't end that one and keeps it
// for good, and what /proc/self tells is of it.
func Do(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // locked: the thread ends
		}
		Do(f) // elsewhere, since this one is taken meanwhile
		runtime.UnlockOSThread()
	}()
	<-ended
}
