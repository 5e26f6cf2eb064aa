// Package launch starts programs in a control group and with a limit of open files. It guarantees
// that a program can't make the system calls that only the agent needs, from its first instruction.
package launch

import (
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
)

// An Attr has the attributes of a program to start.
type Attr struct {
	syscall.ProcAttr
	Limits Limits // only for [Into]
}

// Limits are limits that the kernel enforces for each process: seconds of processor time, bytes of a
// file, open files, and processes of its user. 0 means no limit.
type Limits [4]int64

// resources are the kernel's numbers of the limits.
var resources = [len(Limits{})]int{unix.RLIMIT_CPU, unix.RLIMIT_FSIZE, unix.RLIMIT_NOFILE, unix.RLIMIT_NPROC}

type rlimit struct {
	resource int
	value    unix.Rlimit
}

func (l Limits) lowered() (all []rlimit, err error) {
	for i, limit := range l {
		if limit == 0 {
			continue
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(resources[i], &now); err != nil {
			return nil, err
		}
		hard := uint64(limit)
		if resources[i] == unix.RLIMIT_CPU {
			hard++ // the kernel sends SIGXCPU at the soft limit, SIGKILL at the hard one
		}
		all = append(all, rlimit{resources[i], unix.Rlimit{Cur: min(uint64(limit), now.Max), Max: min(hard, now.Max)}})
	}
	return all, nil
}

// Set lowers the limits of this process.
func (l Limits) Set() error {
	all, err := l.lowered()
	for i := 0; i < len(all) && err == nil; i++ {
		err = unix.Setrlimit(all[i].resource, &all[i].value)
	}
	return err
}

// A Func starts a program like syscall.ForkExec, with the capabilities of the calling thread.
type Func func(file string, argv []string, attr *Attr) (pid int, err error)

// On returns a Func that calls f on a thread.
func (f Func) On(t *confinement.Thread) Func {
	return func(file string, argv []string, attr *Attr) (pid int, err error) {
		t.Do(func() { pid, err = f(file, argv, attr) })
		return pid, err
	}
}

// ResetSignals gives signals that this process ignores since its start, as nohup(1) makes programs do, their
// default action. Call it before the first command: commands inherit that a signal is ignored.
func ResetSignals() {
	const ignored = 1 // SIG_IGN
	for signal := range uintptr(65) {
		var old, usual [4]uint64 // struct sigaction; the first field is the handler
		_, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, signal, 0, uintptr(unsafe.Pointer(&old)), 8, 0, 0)
		if errno == 0 && old[0] == ignored {
			_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, signal, uintptr(unsafe.Pointer(&usual)), 0, 8, 0, 0)
		}
	}
}

// NoGroup makes a program start in the calling thread's group.
const NoGroup = -1

// Into returns a Func that starts a program in a group, given as a descriptor of its directory or
// [NoGroup]. The program may have at most that many open files; 0 means as many as the agent. It
// needs [CanFork].
func Into(group, files int) Func {
	return preferred(func(file string, argv []string, attr *Attr) (int, error) {
		return startIn(group, files, file, argv, attr)
	})
}

// Plain returns a Func that works where [Into] doesn't.
func Plain() Func { return preferred(Exec) }

// Exec is syscall.ForkExec as a Func.
func Exec(file string, argv []string, attr *Attr) (pid int, err error) {
	return syscall.ForkExec(file, argv, &attr.ProcAttr)
}

// preferred makes the kernel choose a program that f started, rather than the agent, when a
// runner's memory is full.
func preferred(f Func) Func {
	const score = "500"
	return func(file string, argv []string, attr *Attr) (int, error) {
		pid, err := f(file, argv, attr)
		if err != nil {
			return pid, err
		}
		if fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			_, _ = unix.Write(fd, []byte(score)) // only a preference: the program may have ended, or the kernel may refuse
			_ = unix.Close(fd)
		}
		return pid, nil
	}
}
