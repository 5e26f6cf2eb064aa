package main

import (
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/serve"
)

// A reaper waits for every child of the agent: the commands that it started,
// and the orphans that the kernel gave it.
type reaper struct {
	mu      sync.Mutex // guards what is below; held from a fork until the child is known, and while one is waited for
	leaders map[int]*process
	groups  map[uint32]*process // by the group id of their slot
}

func newReaper() *reaper {
	return &reaper{leaders: map[int]*process{}, groups: map[uint32]*process{}}
}

// run reaps whenever a SIGCHLD says so.
func (r *reaper) run(signals <-chan os.Signal) {
	for range signals {
		r.reap()
	}
}

// reap reaps every child that has ended.
func (r *reaper) reap() {
	for r.reapOne() {
	}
}

func (r *reaper) reapOne() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := peek()
	if err != nil || pid == 0 {
		return false
	}
	p := r.leaders[pid]
	leader := p != nil
	if !leader {
		// Whose it was can be read only before it is reaped.
		if info, err := readStatus(pid); err == nil {
			p = r.groups[info.slot]
		}
	}
	var status unix.WaitStatus
	var usage unix.Rusage
	if _, err := unix.Wait4(pid, &status, unix.WNOHANG, &usage); err != nil {
		return err == unix.EINTR
	}
	if p == nil {
		return true
	}
	p.usage.User += time.Duration(usage.Utime.Nano())
	p.usage.System += time.Duration(usage.Stime.Nano())
	p.usage.PeakMemory = max(p.usage.PeakMemory, usage.Maxrss<<10)
	if leader {
		delete(r.leaders, pid)
		p.status = serve.Status{Code: status.ExitStatus()}
		if status.Signaled() {
			p.status = serve.Status{Signal: signalName(status.Signal())}
		}
		close(p.exited)
	}
	return true
}

// forget ends the counting for p.
func (r *reaper) forget(p *process) serve.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.groups, p.gid)
	return p.usage
}

// ifIdle calls do if no command runs. None starts before it returns.
func (r *reaper) ifIdle(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.groups) == 0 {
		do()
	}
}

// alone reports whether p is the only one that runs.
func (r *reaper) alone(p *process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.groups) == 1 && r.groups[p.gid] == p
}

// peek returns a child that has ended, and leaves it; 0 if none has, and
// ECHILD if there is no child at all.
func peek() (pid int, err error) {
	// struct siginfo of SIGCHLD, on 64 bits.
	var info struct {
		signo, errno, code, _ int32
		pid                   int32
		_                     [128 - 20]byte
	}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_ALL, 0, uintptr(unsafe.Pointer(&info)),
			unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
		switch errno {
		case 0:
			return int(info.pid), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

func signalName(signal syscall.Signal) string {
	if name := unix.SignalName(signal); name != "" {
		return name
	}
	return "signal " + itoa(int(signal))
}
