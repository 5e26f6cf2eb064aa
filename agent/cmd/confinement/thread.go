package confinement

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// zygoteCapabilities are what a zygote needs to give its children a user and a mark.
var zygoteCapabilities = []uintptr{unix.CAP_SETUID, unix.CAP_SETGID}

// newZygoteThread returns a thread whose programs can have the zygotes' capabilities as ambient
// ones, and no others. It must be called before the bounding set is emptied: later no thread can
// make a capability inheritable.
func newZygoteThread() (*Thread, error) {
	t := &Thread{calls: make(chan func())}
	ready := make(chan error)
	go func() { // for as long as the program runs
		runtime.LockOSThread()
		err := inherit(zygoteCapabilities)
		if err == nil {
			err = dropBounding(thisThread)
		}
		ready <- err
		for call := range t.calls {
			call()
		}
	}()
	return t, <-ready
}

// inherit makes capabilities inheritable for this thread.
func inherit(capabilities []uintptr) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for _, c := range capabilities {
		data[c/32].Inheritable |= 1 << (c % 32)
	}
	return thisThread(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
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
