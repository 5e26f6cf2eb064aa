package process

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/agent/serve"
)

// mostLooks bounds the scans of left, to about a fifth of a second in total. While processes of
// other executions keep ending, a scan may never be sure to be complete.
const mostLooks = 25

// left returns the living processes of p's execution. It returns none if a scan was complete and
// found none, or after mostLooks scans.
func (p *process) left() []int {
	pauses := dying()
	for range mostLooks {
		found, sure := p.members()
		if len(found) > 0 || sure {
			return found
		}
		p.starter.reaper.reap() // zombies
		<-time.After(pauses.Next())
	}
	return nil
}

// members returns the living processes of p's execution. Sure reports whether the list is complete.
// It isn't if a process ended after it was listed, since that may have forked before.
func (p *process) members() (found []int, sure bool) {
	if _, err := peek(); err == unix.ECHILD {
		return nil, true // the agent inherits every orphan, and it has no child
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

// among returns the processes in all that belong to p's execution. Complete says that all listed
// processes could be read, only that p is the only command that runs.
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

// owns reports whether a process belongs to p if processes aren't marked. It does if p started its
// session or that of an ancestor. It also does if it descends from the agent and p is the only
// command that runs.
func (p *process) owns(pid int, all map[int]proc.Status, only bool) bool {
	self := unix.Getpid()
	for range 1 << 10 { // bounded, since entries read at different times may form a cycle
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

// Measure implements serve.Process. Processor time is that of living processes and of those that
// were waited for. A process that has ended and whose parent ignores SIGCHLD is missing. A process
// that is reaped during the call may be missing once. It never counts twice, which would end the
// execution early.
func (p *process) Measure() (m serve.Measure) {
	used := p.reaped()
	m.CPU = used.User + used.System
	p.each(func(pid int) {
		s := proc.ReadStat(pid)
		m.CPU += s.User + s.System
		m.Processes += s.Threads
	})
	if p.alone() && p.group.CountsCPU() {
		m.CPU = max(m.CPU, p.group.CPU()) // includes every process
	}
	return m
}

// reaped returns the usage of p's processes that were waited for. Call it before measuring living
// ones, so that none counts twice.
func (p *process) reaped() serve.Usage {
	p.starter.reaper.mu.Lock()
	defer p.starter.reaper.mu.Unlock()
	return p.usage
}

// each calls do with every process of p. With marks that includes zombies that weren't reaped.
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

func (p *process) Refused() int64 {
	switch {
	case p.alone():
		return p.group.Refused()
	case p.ownKernel():
		return p.refusedInside()
	case p.counters != nil:
		if refused := p.counters.Refused(); !p.wasCrowded() {
			return refused
		}
		return 0
	default:
		return 0
	}
}
