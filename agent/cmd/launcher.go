package main

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// oomScore makes the kernel, when a runner's memory is full, choose what was
// started, not the agent.
const oomScore = "500"

// A forkExec starts a program as syscall.ForkExec does.
type forkExec func(file string, argv []string, attr *syscall.ProcAttr) (pid int, err error)

// A launcher starts the user's commands from one thread of the agent, which has
// an empty bounding set: that can't be changed for a child alone. The other
// threads keep rootCapabilities in theirs, for privileged commands.
type launcher struct{ calls chan func() }

// newLauncher returns a launcher, even if its bounding set could not be
// emptied. One for commands of root keeps what they can have.
func newLauncher(root bool) (*launcher, error) {
	l := &launcher{calls: make(chan func())}
	ready := make(chan error)
	go func() { // until end, or for as long as the program runs
		runtime.LockOSThread() // the runtime starts no other thread from a locked one, and ends it with the goroutine
		if root {
			ready <- nil
		} else {
			ready <- dropBounding(thisThread)
		}
		for call := range l.calls {
			call()
		}
	}()
	return l, <-ready
}

// end ends a launcher that nobody uses.
func (l *launcher) end() { close(l.calls) }

// do calls f on the launcher's thread, and returns when f has.
func (l *launcher) do(f func()) {
	done := make(chan struct{})
	l.calls <- func() {
		f()
		close(done)
	}
	<-done
}

// with returns what starts programs as start does, on the launcher's thread.
func (l *launcher) with(start forkExec) forkExec {
	return func(file string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
		l.do(func() { pid, err = start(file, argv, attr) })
		return pid, err
	}
}

// forkPlainly starts a program on the calling thread, where forkInto is unavailable.
func forkPlainly(file string, argv []string, attr *syscall.ProcAttr) (int, error) {
	pid, err := syscall.ForkExec(file, argv, attr)
	if err == nil {
		raiseScore(pid)
	}
	return pid, err
}

func raiseScore(pid int) {
	if f, err := unix.Open("/proc/"+itoa(pid)+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Write(f, []byte(oomScore)) // it may have ended, or be refused: no more than a preference
		_ = unix.Close(f)
	}
}
