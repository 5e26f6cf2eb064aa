package process

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/agent/serve"
)

// Now implements serve.Process. Where the kernel doesn't count for p alone, memory is what its
// processes have resident: what they share counts for each. There are no peaks then.
func (p *process) Now() (now serve.Now) {
	now.Usage = p.reaped()
	if !p.alone() || !p.group.CountsCPU() {
		p.each(func(pid int) { addLiving(&now, pid) })
		now.PeakMemory = 0 // of those that were waited for
	}
	switch {
	case p.alone():
		p.group.Now(&now)
	case p.whole != nil && !p.wasCrowded():
		p.whole.Now(&now)
	}
	return now
}

// Now returns what all commands of the runner have used so far, and hold. It includes the agent,
// unless commands have their own groups.
func (s *Starter) Now() (now serve.Now) {
	countsCPU := false
	switch {
	case s.Groups != nil:
		countsCPU = s.Groups.Now(&now)
	case s.Whole != nil:
		countsCPU = s.Whole.Now(&now)
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
	if s.Groups != nil || s.Whole != nil {
		now.Memory, now.Processes = counted.Memory, counted.Processes
	}
	return now
}

// addLiving adds what a process has used so far, and holds.
func addLiving(now *serve.Now, pid int) {
	s := proc.ReadStat(pid)
	now.User += s.User
	now.System += s.System
	now.Memory += s.Memory
	now.Processes += s.Threads
}
