package main

import (
	"errors"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

const (
	// stuckStart is after how long a start counts as held up: another process of
	// the same user can stop a child before its exec.
	stuckStart = 2 * time.Second
)

// A process is one command, and all that it started.
type process struct {
	*streams
	host  *host
	group *group // nil: the agent's own
	gid   uint32 // of its slot
	pid   int

	began         time.Time
	lookedAt      look  // when Excessive looked last; the watch's alone
	refusedBefore int64 // by the runner's own kernel, when it began
	crowded       bool  // another ran at the same time; guarded by the reaper's mutex
	heldUp        bool  // its start took so long that it was killed

	exited chan struct{} // closed by the reaper when status is set
	status serve.Status
	usage  serve.Usage // guarded by the reaper's mutex
}

// start starts the first of candidates that the kernel takes.
func (h *host) start(start agent.Start, dir string, candidates []string, gid uint32) (*process, error) {
	who := uint32(user)
	if start.Privileged {
		if who = 0; !h.marking || h.noRoot {
			return nil, &agent.Error{Code: agent.ErrDenied, Field: "privileged", Message: "the agent may not run commands as root here"}
		}
	}
	streams, err := h.openStreams(start, who)
	if err != nil {
		return nil, &agent.Error{Code: agent.ErrTooMany, Message: "no room for pipes or terminals: " + err.Error()}
	}
	defer streams.handedOver()
	p := &process{streams: streams, host: h, gid: gid, began: time.Now(), exited: make(chan struct{})}
	if h.groups != nil {
		if p.group, err = h.groups.take(start.Privileged); err != nil {
			streams.close()
			return nil, err
		}
		if p.alone() {
			p.group.counters.begin()
		}
	}
	if h.inner != nil {
		p.refusedBefore = h.inner.refused()
	}
	attr := &syscall.ProcAttr{
		Dir: dir, Env: start.Env, Files: streams.theirs,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: start.Terminal != nil},
	}
	if h.marking {
		attr.Sys.Credential = &syscall.Credential{Uid: who, Gid: who, Groups: []uint32{who, gid}}
	}
	if err = h.execute(p, start, candidates, attr); err == nil {
		return p, nil
	}
	p.leaveGroup()
	streams.close()
	var told *agent.Error
	if errors.As(err, &told) {
		return nil, told
	}
	if err == unix.EACCES && h.marking && who == user && !searchable(dir) {
		return nil, &agent.Error{Code: agent.ErrDenied, Field: "dir", Path: start.Dir, Message: "may not be entered"}
	}
	return nil, execError(start.Argv[0], err)
}

// execute starts the first of candidates that the kernel takes.
func (h *host) execute(p *process, start agent.Start, candidates []string, attr *syscall.ProcAttr) (err error) {
	launch := h.fork
	if !start.Privileged {
		launch = h.launcher.with(launch)
	}
	if p.group != nil {
		launch = p.group.fork
	}
	if limits := start.Limits; limits != nil && *limits != (agent.Limits{}) {
		return h.executeLimited(p, launch, start, candidates, attr)
	}
	for _, file := range candidates {
		if err = h.reaper.start(p, launch, file, start.Argv, attr); err != unix.EACCES && err != unix.ENOENT {
			break
		}
	}
	if p.heldUp {
		h.giveUp(p)
		return &agent.Error{Code: agent.ErrTooMany, Message: "the start was held up: the runner is too busy, or another of its programs stops what starts"}
	}
	return err
}

// giveUp ends a process whose start failed after its fork.
func (h *host) giveUp(p *process) {
	p.Kill(0)
	<-p.exited
	h.reaper.forget(p)
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
func (r *reaper) start(p *process, launch forkExec, file string, argv []string, attr *syscall.ProcAttr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A child that was stopped before its exec would hold the lock for ever.
	killed := make(chan bool, 1)
	watchdog := time.AfterFunc(stuckStart, func() {
		members := p.members()
		for _, pid := range members { // and no other, which may be past its exec by then
			p.signal(pid, unix.SIGKILL)
		}
		killed <- len(members) > 0
	})
	pid, err := launch(file, argv, attr)
	stuck := !watchdog.Stop() && <-killed
	if err != nil {
		return err
	}
	p.pid, p.heldUp = pid, stuck
	r.leaders[pid] = p
	for _, other := range r.groups {
		other.crowded, p.crowded = true, true
	}
	r.groups[p.gid] = p
	return nil
}

// Pipes is of [serve.Process].
func (p *process) Pipes() (stdin io.WriteCloser, stdout, stderr io.Reader) {
	return p.stdin, p.stdout, p.stderr
}

// Wait is of [serve.Process].
func (p *process) Wait() serve.Status {
	<-p.exited
	return p.status
}

// Close is of [serve.Process].
func (p *process) Close() serve.Usage {
	p.host.reaper.reap() // what was killed last counts, too
	p.close()
	usage := p.host.reaper.forget(p)
	if p.alone() {
		p.group.counters.end(&usage)
	}
	if p.ownKernel() {
		usage.Own, usage.Refused = true, p.refusedInside()
	}
	p.leaveGroup()
	p.host.slots.free(p.gid)
	p.host.removeSegments()
	return usage
}

// alone reports whether p has a group for itself.
func (p *process) alone() bool { return p.group != nil && !p.group.shared() }

// leaveGroup gives p's group back.
func (p *process) leaveGroup() {
	if p.group != nil {
		p.host.groups.give(p.group)
	}
}

// ownKernel reports whether what the runner's own kernel counts is p's: nothing
// else ran.
func (p *process) ownKernel() bool {
	if p.host.inner == nil {
		return false
	}
	p.host.reaper.mu.Lock()
	defer p.host.reaper.mu.Unlock()
	return !p.crowded
}

// refusedInside returns how many forks that kernel refused since p began.
func (p *process) refusedInside() int64 { return p.host.inner.refused() - p.refusedBefore }
