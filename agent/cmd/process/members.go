package process

import (
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// members returns the processes of p's execution that aren't dead.
func (p *process) members() []int {
	if _, err := peek(); err == unix.ECHILD {
		return nil // the agent, which inherits every orphan, has no child: nothing is left
	}
	if p.alone() {
		return p.group.Members()
	}
	all := map[int]proc.Status{}
	for _, pid := range proc.PIDs() {
		if s, err := proc.ReadStatus(pid); err == nil && !s.Dead {
			all[pid] = s
		}
	}
	var found []int
	if p.starter.marking {
		for pid, s := range all {
			if s.Mark == p.mark {
				found = append(found, pid)
			}
		}
		return found
	}
	only := p.starter.reaper.alone(p)
	for pid := range all {
		if p.owns(pid, all, only) {
			found = append(found, pid)
		}
	}
	return found
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
