package confinement

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// A Thread is a thread of the agent that starts user code. Its bounding set is empty, because a
// bounding set can't be changed for a child alone. The agent's other threads keep rootCapabilities
// in theirs, for privileged commands. The methods are safe for concurrent use, but Do must not be
// called after End.
type Thread struct{ calls chan func() }

// NewThread starts a thread. It returns the thread even with an error, which says that its bounding
// set couldn't be emptied. With root the set keeps the capabilities of privileged commands.
func NewThread(root bool) (*Thread, error) {
	return startThread(func() error {
		if root {
			return nil
		}
		return dropBounding(thisThread)
	})
}

// startThread starts a thread, which begins with prepare. It returns the thread and prepare's error.
func startThread(prepare func() error) (*Thread, error) {
	t := &Thread{calls: make(chan func())}
	ready := make(chan error)
	proc.StartThread(func() bool { // until End, or the program's end; Go starts no other thread from it
		ready <- prepare()
		for call := range t.calls {
			call()
		}
		return false
	})
	return t, <-ready
}

// newZygoteThread starts a thread whose programs can have two capabilities as ambient ones, and no
// others: those that a zygote needs to give its children a user and a mark. It must be called before
// the bounding set is emptied: afterwards no thread can make a capability inheritable.
func newZygoteThread() (*Thread, error) {
	return startThread(func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			return err
		}
		data[0].Inheritable |= 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
		if err := thisThread(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0); err != nil {
			return err
		}
		return dropBounding(thisThread)
	})
}

// End ends the thread. It may be called once.
func (t *Thread) End() { close(t.calls) }

// Do runs f on the thread, and waits for it.
func (t *Thread) Do(f func()) {
	done := make(chan struct{})
	t.calls <- func() {
		f()
		close(done)
	}
	<-done
}
