package process

import (
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/agent/serve"
)

// A reaper waits for every child of the agent: the commands that it started, and the orphans that
// it inherited. Its methods are safe for concurrent use.
type reaper struct {
	mu      sync.Mutex          // guards the fields below; held from a fork until the child is registered, and while a child is reaped
	leaders map[int]*process    // by process id
	marked  map[uint32]*process // by mark
}

func newReaper() *reaper {
	return &reaper{leaders: map[int]*process{}, marked: map[uint32]*process{}}
}

// start forks and executes, and registers the child before it can be reaped.
func (r *reaper) start(p *process, f launch.Func, file string, argv []string, attr *launch.Attr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A child that is stopped before its exec would hold the lock forever. The kernel kills those
	// that launch.Into starts. This watchdog kills those of the zygote and of launch.Plain.
	killed := make(chan bool, 1)
	watchdog := time.AfterFunc(launch.Stuck, func() {
		if !p.starter.marking { // without marks p's processes are unknown before it is registered
			killed <- false
			return
		}
		members, _ := p.members()
		for _, pid := range members { // only these: a process that appears later may be past its exec
			p.signal(pid, unix.SIGKILL)
		}
		killed <- len(members) > 0
	})
	pid, err := f(file, argv, attr)
	stuck := !watchdog.Stop() && <-killed
	if err != nil {
		return err
	}
	p.pid, p.heldUp = pid, stuck
	r.leaders[pid] = p
	// Counts of the whole runner can't be attributed to one of several commands.
	for _, other := range r.marked {
		other.crowded, p.crowded = true, true
	}
	r.marked[p.mark] = p
	return nil
}

func (r *reaper) reap() {
	for r.reapOne() {
	}
}

// reapOne reaps one child that has ended, and reports whether there may be another one.
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
		// The mark can be read only before the child is reaped.
		if info, err := proc.ReadStatus(pid); err == nil {
			p = r.marked[info.Mark]
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
		p.status = statusOf(status)
		close(p.exited)
	}
	return true
}

// forget ends the accounting for p, and returns its usage.
func (r *reaper) forget(p *process) serve.Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.marked, p.mark)
	return p.usage
}

func (r *reaper) alone(p *process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.marked) == 1 && r.marked[p.mark] == p
}

// unreaped calls do. No command starts and no child is reaped before do returns.
func (r *reaper) unreaped(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// peek returns a child that has ended, without reaping it. It returns 0 if none has, and ECHILD if
// the agent has no child.
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

func statusOf(status unix.WaitStatus) serve.Status {
	if status.Signaled() {
		return serve.Status{Signal: signalName(status.Signal())}
	}
	return serve.Status{Code: status.ExitStatus()}
}

func signalName(signal syscall.Signal) string {
	if name := unix.SignalName(signal); name != "" {
		return name
	}
	return "signal " + strconv.Itoa(int(signal))
}
