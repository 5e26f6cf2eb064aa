package process

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// signal sends a signal to a process if it is still a member of p.
func (p *process) signal(pid int, signal unix.Signal) {
	// The descriptor guarantees that the signal goes to this process, not to another one that got its id.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if err == unix.ENOSYS {
			_ = unix.Kill(pid, signal)
		}
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if p.starter.marking {
		if s, err := proc.ReadStatus(pid); err != nil || s.Mark != p.mark {
			return
		}
	}
	_ = unix.PidfdSendSignal(fd, signal, nil, 0)
}

// signalAll sends signals to older processes first: a shell that has a trap and waits for its child
// must get the signal before its child ends.
func (p *process) signalAll(signals ...unix.Signal) {
	members, _ := p.members()
	slices.Sort(members)
	for _, pid := range members {
		for _, signal := range signals {
			p.signal(pid, signal)
		}
	}
}

func (p *process) Kill(grace time.Duration) {
	if grace > 0 {
		signals := []unix.Signal{unix.SIGTERM, unix.SIGCONT}
		if p.hasTerminal() {
			// Like a hang-up: interactive shells ignore SIGTERM.
			signals = []unix.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGCONT}
		}
		p.signalAll(signals...)
		p.waitGone(grace)
	}
	p.killAll()
	p.stdout.finish()
	p.stderr.finish()
}

func (p *process) waitGone(most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	pauses := backoff.Backoff{First: time.Millisecond, Last: 20 * time.Millisecond}
	for len(p.left()) > 0 && pauses.Wait(ctx) == nil {
	}
}

// killAll kills all members and waits until none is left. First it stops them, because some would
// fork while others die. A group of p's own is frozen in one step, and a frozen group can't fork. Each caller
// thaws it only after it found no member. Without such a group, members are stopped repeatedly until no new one
// appears. Stopped processes still count, so a fork bomb at its limit of processes can't grow.
func (p *process) killAll() {
	frozen := false
	if _, err := peek(); err != unix.ECHILD && p.alone() { // first, since every other step takes time
		if thaw := p.group.Freeze(); thaw != nil {
			frozen = true
			defer thaw()
		}
	}
	// The runner is full, so the command may fork faster than this kernel lists processes.
	if p.starter.Guest != nil && p.refusedInside() > 0 {
		defer p.starter.Guest.Hold()()
	}
	pauses := dying()
	for {
		stopped := map[int]bool{}
		for fresh := true; fresh; {
			fresh = false
			for _, pid := range p.left() {
				if !stopped[pid] {
					if !frozen {
						p.signal(pid, unix.SIGSTOP)
					}
					stopped[pid], fresh = true, !frozen
				}
			}
		}
		if len(stopped) == 0 {
			return
		}
		for pid := range stopped {
			p.signal(pid, unix.SIGKILL)
		}
		// Killed processes need a moment to end.
		<-time.After(pauses.Next())
	}
}

// dying returns the pauses of the wait for killed processes.
func dying() backoff.Backoff {
	return backoff.Backoff{First: 100 * time.Microsecond, Last: 10 * time.Millisecond}
}

func (p *process) Signal(name string) bool {
	signal := unix.SignalNum(name)
	if signal == 0 {
		return false
	}
	// After the leader was reaped, its process group id may be reused.
	r := p.starter.reaper
	r.unreaped(func() {
		if r.leaders[p.pid] == p {
			_ = unix.Kill(-p.pid, signal)
		}
	})
	group := p.foreground()
	if group == 0 || group == p.pid {
		return true
	}
	members, _ := p.members()
	for _, pid := range members {
		// Only a group with a member of p gets the signal, since the id may belong to another group
		// by now.
		if of, err := unix.Getpgid(pid); err == nil && of == group {
			_ = unix.Kill(-group, signal)
			break
		}
	}
	return true
}
