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

// fork starts a program on the calling thread.
func fork(file string, argv []string, attr *syscall.ProcAttr) (int, error) {
	pid, err := syscall.ForkExec(file, argv, attr)
	if err != nil {
		return 0, err
	}
	if f, err := unix.Open("/proc/"+itoa(pid)+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Write(f, []byte(oomScore)) // it may have ended, or be refused: no more than a preference
		_ = unix.Close(f)
	}
	return pid, nil
}

func (l *launcher) fork(file string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	done := make(chan struct{})
	l.calls <- func() {
		pid, err = fork(file, argv, attr)
		close(done)
	}
	<-done
	return pid, err
}
