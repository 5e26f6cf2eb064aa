// Package launch starts programs: in a control group, with a limit of open files, and without the
// system calls that only the agent needs, from their first instruction on.
package launch

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
)

// A Func starts a program as syscall.ForkExec does, with the calling thread's capabilities.
type Func func(file string, argv []string, attr *syscall.ProcAttr) (pid int, err error)

// On returns what starts programs as f does, on a thread.
func (f Func) On(t *confinement.Thread) Func {
	return func(file string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
		t.Do(func() { pid, err = f(file, argv, attr) })
		return pid, err
	}
}

// NoGroup has a program begin in the calling thread's groups.
const NoGroup = -1

// Into returns what starts a program in a group, whose directory this is, or [NoGroup], with at
// most so many open files; 0 is as many as the agent may have. It needs [CanFork].
func Into(group, files int) Func {
	return preferred(func(file string, argv []string, attr *syscall.ProcAttr) (int, error) {
		return startIn(group, files, file, argv, attr)
	})
}

// Plain returns what starts a program where [Into] is unavailable.
func Plain() Func { return preferred(syscall.ForkExec) }

// preferred makes the kernel, when a runner's memory is full, choose what f started, not the
// agent.
func preferred(f Func) Func {
	const score = "500"
	return func(file string, argv []string, attr *syscall.ProcAttr) (int, error) {
		pid, err := f(file, argv, attr)
		if err != nil {
			return pid, err
		}
		if fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			_, _ = unix.Write(fd, []byte(score)) // it may have ended, or be refused: no more than a preference
			_ = unix.Close(fd)
		}
		return pid, nil
	}
}
