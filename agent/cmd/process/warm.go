package process

import (
	"syscall"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/warm"
)

// executeWarm starts a command from the zygote. Done: it was started, or may have been, and err is its
// error. Not done: nothing of it has run, and p says why.
func (s *Starter) executeWarm(p *process, start agent.Start, dir string, candidates []string, attr *syscall.ProcAttr) (done bool, err error) {
	command, cold, loaded := s.warm.Command(start, dir, candidates)
	if p.how.cold = cold; cold != "" || !loaded {
		return false, nil
	}
	defer s.stock(p.group, p.exited)
	if err := s.becomes(p, command, start, attr); err != nil {
		p.how.cold = err.Error()
		return false, nil
	}
	p.how = temperature{warm: true}
	return true, s.ifHeldUp(p)
}

// becomes has a child of the zygote become a command.
func (s *Starter) becomes(p *process, command warm.Command, start agent.Start, attr *syscall.ProcAttr) error {
	spare, err := s.warm.Take(p.group)
	if err != nil {
		return err
	}
	if err = spare.Become(command, start.Argv, attr, s.kernelLimits(start), p.group); err == nil {
		err = s.reaper.start(p, spare.Go, "", start.Argv, attr)
	}
	if err != nil {
		spare.End()
		return err
	}
	spare.Close()
	return nil
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
		_ = s.warm.Stock(group) // the next start says what is wrong
	}()
}

// WarmUp loads the interpreter, and forks the child for the first command.
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
	if err := s.warm.Stock(group); err != nil {
		return warmed, &agent.Error{Code: agent.ErrInvalid, Field: "interpreter", Path: path, Message: "has loaded its modules, but can't fork for commands: " + err.Error()}
	}
	return warmed, nil
}
