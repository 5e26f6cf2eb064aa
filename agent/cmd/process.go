package main

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

const (
	// oomScore makes the kernel, when a runner's memory is full, choose what was
	// started, not the agent.
	oomScore = "500"

	// stuckStart is after how long a start counts as held up: another process of
	// the same user can stop a child before its exec.
	stuckStart = 2 * time.Second
)

// A process is one command, and all that it started.
type process struct {
	host   *host
	gid    uint32 // of its slot
	pid    int
	stdin  *os.File // nil: none
	stdout *outlet
	stderr *outlet

	exited chan struct{} // closed by the reaper when status is set
	status serve.Status
	usage  serve.Usage // guarded by the reaper's mutex
}

// pipes are the three pipes of a command; the first three are the command's
// ends.
type pipes struct{ in, out, err, ourIn, ourOut, ourErr int }

func (h *host) makePipes(stdin bool) (p pipes, err error) {
	p = pipes{h.null, -1, -1, -1, -1, -1}
	defer func() {
		if err != nil {
			p.closeTheirs(h)
			for _, fd := range []int{p.ourIn, p.ourOut, p.ourErr} {
				if fd >= 0 {
					_ = unix.Close(fd)
				}
			}
		}
	}()
	pipe := func(read, write *int, theirs, ours *int) error {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		*read, *write = fds[0], fds[1]
		if h.marking {
			// So that the command can open /dev/stdout, which is looked up by owner.
			if err := unix.Fchown(*theirs, user, user); err != nil {
				return err
			}
		}
		return unix.SetNonblock(*ours, true)
	}
	if err = pipe(&p.ourOut, &p.out, &p.out, &p.ourOut); err != nil {
		return p, err
	}
	if err = pipe(&p.ourErr, &p.err, &p.err, &p.ourErr); err != nil {
		return p, err
	}
	if stdin {
		err = pipe(&p.in, &p.ourIn, &p.in, &p.ourIn)
	}
	return p, err
}

func (p pipes) closeTheirs(h *host) {
	for _, fd := range []int{p.in, p.out, p.err} {
		if fd >= 0 && fd != h.null {
			_ = unix.Close(fd)
		}
	}
}

// start starts the first of candidates that the kernel takes.
func (h *host) start(start agent.Start, dir string, candidates []string, gid uint32) (*process, error) {
	pipes, err := h.makePipes(start.Stdin)
	if err != nil {
		return nil, &agent.Error{Code: agent.ErrTooMany, Message: "no room for pipes: " + err.Error()}
	}
	defer pipes.closeTheirs(h)
	p := &process{
		host: h, gid: gid, exited: make(chan struct{}),
		stdout: newOutlet(pipes.ourOut), stderr: newOutlet(pipes.ourErr),
	}
	if pipes.ourIn >= 0 {
		p.stdin = os.NewFile(uintptr(pipes.ourIn), "stdin")
	}
	attr := &syscall.ProcAttr{
		Dir: dir, Env: start.Env,
		Files: []uintptr{uintptr(pipes.in), uintptr(pipes.out), uintptr(pipes.err)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if h.marking {
		attr.Sys.Credential = &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{user, gid}}
	}
	for _, file := range candidates {
		if err = h.reaper.start(p, file, start.Argv, attr); err == nil {
			return p, nil
		}
		if err != unix.EACCES && err != unix.ENOENT {
			break
		}
	}
	p.closePipes()
	if err == unix.EACCES && h.marking && !searchable(dir) {
		return nil, &agent.Error{Code: agent.ErrDenied, Field: "dir", Path: start.Dir, Message: "may not be entered"}
	}
	return nil, execError(start.Argv[0], err)
}

// searchable reports whether user may enter a directory, as far as its own
// mode says.
func searchable(dir string) bool {
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) != nil {
		return false
	}
	switch {
	case stat.Uid == user:
		return stat.Mode&0o100 != 0
	case stat.Gid == user:
		return stat.Mode&0o010 != 0
	default:
		return stat.Mode&0o001 != 0
	}
}

// start forks and executes, and knows the child before it can be reaped.
func (r *reaper) start(p *process, file string, argv []string, attr *syscall.ProcAttr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A child that was stopped before its exec would hold the lock for ever.
	watchdog := time.AfterFunc(stuckStart, p.signalAll(unix.SIGKILL))
	defer watchdog.Stop()
	pid, err := syscall.ForkExec(file, argv, attr)
	if err != nil {
		return err
	}
	p.pid = pid
	r.leaders[pid] = p
	r.groups[p.gid] = p
	if f, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Write(f, []byte(oomScore)) // it may have ended, or be refused: no more than a preference
		_ = unix.Close(f)
	}
	return nil
}

// Pipes is of [serve.Process].
func (p *process) Pipes() (stdin io.WriteCloser, stdout, stderr io.Reader) {
	if p.stdin != nil {
		stdin = p.stdin
	}
	return stdin, p.stdout, p.stderr
}

// Wait is of [serve.Process].
func (p *process) Wait() serve.Status {
	<-p.exited
	return p.status
}

// Close is of [serve.Process].
func (p *process) Close() serve.Usage {
	p.host.reaper.reap() // what was killed last counts, too
	p.closePipes()
	usage := p.host.reaper.forget(p)
	p.host.slots.free(p.gid)
	return usage
}

func (p *process) closePipes() {
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
	_ = p.stdout.file.Close()
	_ = p.stderr.file.Close()
}

// An outlet reads a command's pipe until its end, or, once nothing of the
// execution is left, until what was in it then: somebody else may hold the
// other end, and keep on printing.
type outlet struct {
	file *os.File
	left int // bytes that were in the pipe at the end; -1 before that is known
}

func newOutlet(fd int) *outlet {
	return &outlet{file: os.NewFile(uintptr(fd), "pipe"), left: -1}
}

// finish makes reads end after what is in the pipe.
func (o *outlet) finish() { _ = o.file.SetReadDeadline(time.Unix(1, 0)) }

func (o *outlet) Read(b []byte) (int, error) {
	n, err := o.file.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	raw, err := o.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	n = 0
	controlErr := raw.Control(func(fd uintptr) {
		if o.left < 0 {
			if o.left, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil {
				return
			}
		}
		if o.left > 0 {
			n, err = unix.Read(int(fd), b[:min(len(b), o.left)])
			o.left -= max(n, 0)
		}
	})
	if n <= 0 || err != nil || controlErr != nil {
		return 0, io.EOF
	}
	return n, nil
}
