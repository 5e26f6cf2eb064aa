package main

import (
	"runtime"
	"syscall"
)

// A forkExec is syscall.ForkExec, or does the same in another place.
type forkExec func(file string, argv []string, attr *syscall.ProcAttr) (pid int, err error)

// A launcher starts the user's commands from one thread of the agent, which has
// an empty bounding set: that can't be changed for a child alone. The other
// threads keep rootCapabilities in theirs, for privileged commands.
type launcher struct{ calls chan func() }

// newLauncher returns a launcher, even if its bounding set could not be
// emptied.
func newLauncher() (*launcher, error) {
	l := &launcher{calls: make(chan func())}
	ready := make(chan error)
	go func() { // for as long as the program runs
		runtime.LockOSThread() // the runtime starts no other thread from a locked one
		ready <- dropBounding(thisThread)
		for call := range l.calls {
			call()
		}
	}()
	return l, <-ready
}

func (l *launcher) forkExec(file string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	done := make(chan struct{})
	l.calls <- func() {
		pid, err = syscall.ForkExec(file, argv, attr)
		close(done)
	}
	<-done
	return pid, err
}
