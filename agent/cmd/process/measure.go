package process

import (
	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/agent/serve"
)

// Measure implements serve.Process. Processor time is that of the living and of
// those that were waited for. A process whose parent ignores
// SIGCHLD is missing once it has ended.
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
		for _, pid := range p.members() {
			count(pid)
		}
	}
	p.starter.reaper.mu.Lock()
	defer p.starter.reaper.mu.Unlock()
	m.CPU += p.usage.User + p.usage.System
	if p.alone() && p.group.CountsCPU() {
		m.CPU = max(m.CPU, p.group.CPU()) // misses nobody
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
