package process

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// Now implements serve.Process. If the kernel doesn't count for p alone, memory is the sum of its
// processes' resident memory, where shared memory counts for each process. There are no peaks then.
func (p *process) Now() (now agent.Used) {
	reaped := p.reaped()
	now.User, now.System, now.PeakMemory = reaped.User, reaped.System, reaped.PeakMemory
	if !p.alone() || !p.group.CountsCPU() {
		p.each(func(pid int) { addLiving(&now, pid) })
		now.PeakMemory = 0 // only of processes that were waited for
	}
	switch {
	case p.alone():
		p.group.Now(&now)
	case p.counters != nil && !p.wasCrowded():
		p.counters.Now(&now)
	}
	return now
}

// Now returns the usage of all commands of the runner so far, and what they hold. It includes the
// agent, unless commands have their own groups.
func (s *Starter) Now() (now agent.Used) {
	countsCPU := false
	switch {
	case s.Groups != nil:
		countsCPU = s.Groups.Now(&now)
	case s.RunnerGroup != nil:
		countsCPU = s.RunnerGroup.Now(&now)
	}
	if countsCPU {
		return now
	}
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var usage unix.Rusage
		if unix.Getrusage(who, &usage) == nil {
			now.User += time.Duration(usage.Utime.Nano())
			now.System += time.Duration(usage.Stime.Nano())
		}
	}
	counted := now
	pids, _ := proc.PIDs()
	for _, pid := range pids {
		if status, err := proc.ReadStatus(pid); err == nil && status.Mark != 0 {
			addLiving(&now, pid)
		}
	}
	// The group has counted what these processes hold.
	if s.Groups != nil || s.RunnerGroup != nil {
		now.Memory, now.Processes = counted.Memory, counted.Processes
	}
	return now
}

func addLiving(now *agent.Used, pid int) {
	s := proc.ReadStat(pid)
	now.User += s.User
	now.System += s.System
	now.Memory += s.Memory
	now.Processes += s.Threads
}
