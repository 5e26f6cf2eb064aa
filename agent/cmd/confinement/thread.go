package confinement

import "runtime"

// A Thread is one of the agent's threads on which user code is started, with an empty bounding
// set: that can't be changed for a child alone. The other threads keep rootCapabilities in
// theirs, for privileged commands. Its methods are safe for concurrent use.
type Thread struct{ calls chan func() }

// NewThread returns a thread, even if its bounding set could not be emptied. With root it keeps
// what commands of root can have.
func NewThread(root bool) (*Thread, error) {
	t := &Thread{calls: make(chan func())}
	ready := make(chan error)
	go func() { // until End, or for as long as the program runs
		runtime.LockOSThread() // the runtime starts no other thread from a locked one, and ends it with the goroutine
		if root {
			ready <- nil
		} else {
			ready <- dropBounding(thisThread)
		}
		for call := range t.calls {
			call()
		}
	}()
	return t, <-ready
}

// End ends a thread that is not used any more.
func (t *Thread) End() { close(t.calls) }

// Do calls f on the thread, and returns when f has.
func (t *Thread) Do(f func()) {
	done := make(chan struct{})
	t.calls <- func() {
		f()
		close(done)
	}
	<-done
}
