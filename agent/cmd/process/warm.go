package process

import (
	"syscall"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/warm"
)

// executeWarm starts a command from the zygote. It reports whether the command was started, or may
// have been, and then its error. Otherwise nothing of the command has run, and p says why.
func (s *Starter) executeWarm(p *process, start agent.Start, dir string, candidates []string, attr *syscall.ProcAttr) (done bool, err error) {
	if !s.marking {
		return false, nil
	}
	var command warm.Command
	if command, p.how.cold = s.warm.Command(start, dir, candidates); p.how.cold != "" || command == (warm.Command{}) {
		return false, nil
	}
	defer s.stock(p.group, p.exited)
	spare, err := s.warm.Take(p.group)
	if err == nil {
		err = s.reaper.start(p, spare.Launch(command, s.kernelLimits(start), p.group), candidates[0], start.Argv, attr)
	}
	if err != nil {
		p.how.cold = err.Error()
		return false, nil
	}
	p.how = temperature{warm: true}
	return true, s.ifHeldUp(p)
}

// stockAfter is after how long the zygote forks for the next command: it doesn't hold up the
// beginning of this one.
const stockAfter = 30 * time.Millisecond

// stock has a child of the zygote wait for the next command in group, soon or when this one ends.
func (s *Starter) stock(group *groups.Group, ended <-chan struct{}) {
	go func() { // which ends when the child waits
		select {
		case <-ended:
		case <-time.After(stockAfter):
		}
		s.warm.Stock(group)
	}()
}

// WarmUp has the interpreter loaded that commands start from, and a child of it wait for the first
// one.
func (s *Starter) WarmUp(want agent.Warm, path string) (agent.Warmed, error) {
	if !s.marking {
		return agent.Warmed{}, &agent.Error{Code: agent.ErrDenied, Message: "commands have no user of their own here, so no interpreter can be loaded for them"}
	}
	warmed, err := s.warm.Prepare(want, path)
	if err != nil {
		return warmed, err
	}
	var group *groups.Group
	if s.Groups != nil {
		if group, err = s.Groups.Take(false); err != nil {
			return warmed, err
		}
		defer s.Groups.Give(group)
	}
	s.warm.Stock(group)
	return warmed, nil
}
