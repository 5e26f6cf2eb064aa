package process

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/agent/serve"
)

// mostLooks bounds how often left looks. Others' processes that end may keep it from being sure.
const mostLooks = 100

// left returns the processes of p's execution that aren't dead. It returns none only if it is sure, or
// after about a second.
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
	sure = true
	all := map[int]proc.Status{}
	for _, pid := range proc.PIDs() {
		s, err := proc.ReadStatus(pid)
		switch {
		case err != nil:
			sure = false
		case !s.Dead:
			all[pid] = s
		case !p.starter.marking || s.Mark == p.mark:
			sure = false
		}
	}
	if p.starter.marking {
		for pid, s := range all {
			if s.Mark == p.mark {
				found = append(found, pid)
			}
		}
		return found, sure
	}
	only := p.starter.reaper.alone(p)
	for pid := range all {
		if p.owns(pid, all, only) {
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
// waited for: a process whose parent ignores SIGCHLD is missing once it has ended.
func (p *process) Measure() (m serve.Measure) {
	count := func(pid int) {
		cpu, threads := proc.ReadStat(pid)
		m.CPU += cpu
		m.Processes += threads
	}
	if p.starter.marking {
		for _, pid := range proc.PIDs() { // the dead count too, until they are waited for
			if s, err := proc.ReadStatus(pid); err == nil && s.Mark == p.mark {
				count(pid)
			}
		}
	} else {
		members, _ := p.members()
		for _, pid := range members {
			count(pid)
		}
	}
	p.starter.reaper.mu.Lock()
	defer p.starter.reaper.mu.Unlock()
	m.CPU += p.usage.User + p.usage.System
	if p.alone() && p.group.CountsCPU() {
		m.CPU = max(m.CPU, p.group.CPU()) // which misses no process
	}
	return m
}

// Refused implements serve.Process.
func (p *process) Refused() int64 {
	switch {
	case p.alone():
		return p.group.Refused()
	case p.ownKernel():
		return p.refusedInside()
	default:
		return 0
	}
}
