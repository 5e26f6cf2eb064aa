package process

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/agent/serve"
)

// mostLooks bounds how often left looks, in a fifth of a second. Others' processes that end while it
// looks keep it from being sure.
const mostLooks = 25

// left returns the processes of p's execution that aren't dead. It returns none if it is sure, or has
// looked often.
func (p *process) left() []int {
	pauses := dying()
	for range mostLooks {
		found, sure := p.members()
		if len(found) > 0 || sure {
			return found
		}
		p.starter.reaper.reap() // the dead
		<-time.After(pauses.Next())
	}
	return nil
}

// members returns the processes of p's execution that aren't dead, and whether these are sure to be
// all: not if one ended after it was listed, which may have forked before.
func (p *process) members() (found []int, sure bool) {
	if _, err := peek(); err == unix.ECHILD {
		return nil, true // the agent, which inherits every orphan, has no child: nothing is left
	}
	if p.alone() {
		return p.group.Members()
	}
	pids, complete := proc.PIDs()
	all := map[int]proc.Status{}
	for _, pid := range pids {
		s, err := proc.ReadStatus(pid)
		if err != nil {
			complete = false
			continue
		}
		all[pid] = s
	}
	return p.among(all, complete, !p.starter.marking && p.starter.reaper.alone(p))
}

// among returns which of all processes members returns. Complete: all that were listed could be read.
// Only: p is the only one that runs.
func (p *process) among(all map[int]proc.Status, complete, only bool) (found []int, sure bool) {
	sure = complete
	for pid, s := range all {
		mine := s.Mark == p.mark
		if !p.starter.marking {
			mine = p.owns(pid, all, only)
		}
		switch {
		case !mine:
		case s.Dead:
			sure = false
		default:
			found = append(found, pid)
		}
	}
	return found, sure
}

// owns reports, where processes aren't marked, whether one belongs to p: by its
// session or that of an ancestor, or because it descends from the agent and p
// is the only one that runs.
func (p *process) owns(pid int, all map[int]proc.Status, only bool) bool {
	self := unix.Getpid()
	for range 1 << 10 { // what was read at different times may have circles
		s, ok := all[pid]
		if !ok || pid == self {
			return false
		}
		if s.Session == p.pid || only && s.Parent == self {
			return true
		}
		pid = s.Parent
	}
	return false
}

// Measure implements serve.Process. Processor time is that of the living and of those that were
// waited for: a process whose parent ignores SIGCHLD is missing once it has ended. One that is reaped
// meanwhile may be missing this once, and never counts twice: its time would end the execution early.
func (p *process) Measure() (m serve.Measure) {
	used := p.reaped()
	m.CPU = used.User + used.System
	p.each(func(pid int) {
		s := proc.ReadStat(pid)
		m.CPU += s.User + s.System
		m.Processes += s.Threads
	})
	if p.alone() && p.group.CountsCPU() {
		m.CPU = max(m.CPU, p.group.CPU()) // which misses no process
	}
	return m
}

// reaped returns what those of p's processes used that were waited for. Call it before the living
// are measured.
func (p *process) reaped() serve.Usage {
	p.starter.reaper.mu.Lock()
	defer p.starter.reaper.mu.Unlock()
	return p.usage
}

// each calls do with every process of p's. The dead count, too, until they are waited for, where
// processes are marked.
func (p *process) each(do func(pid int)) {
	if !p.starter.marking {
		members, _ := p.members()
		for _, pid := range members {
			do(pid)
		}
		return
	}
	pids, _ := proc.PIDs()
	for _, pid := range pids {
		if s, err := proc.ReadStatus(pid); err == nil && s.Mark == p.mark {
			do(pid)
		}
	}
}

// Refused implements serve.Process.
func (p *process) Refused() int64 {
	switch {
	case p.alone():
		return p.group.Refused()
	case p.ownKernel():
		return p.refusedInside()
	case p.whole != nil:
		if refused := p.whole.Refused(); !p.wasCrowded() {
			return refused
		}
		return 0
	default:
		return 0
	}
}
