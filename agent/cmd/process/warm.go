package process

import (
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/warm"
)

// executeWarm starts a command from the zygote. If done is true, the command was started or may
// have been, and err is its error. If done is false, nothing of it has run, and p records the
// reason.
func (s *Starter) executeWarm(p *process, start agent.Start, dir string, candidates []string, attr *launch.Attr) (done bool, err error) {
	command, cold, loaded := s.warm.Command(start, dir, candidates)
	if p.cold = cold; cold != "" || !loaded {
		return false, nil
	}
	defer s.stock(p)
	if err := s.becomes(p, command, start, attr); err != nil {
		p.cold = err.Error()
		return false, nil
	}
	p.warm = true
	return true, s.ifHeldUp(p)
}

func (s *Starter) becomes(p *process, command warm.Command, start agent.Start, attr *launch.Attr) error {
	spare, err := s.warm.Take(p.group)
	if err != nil {
		return err
	}
	if err = spare.Become(command, start.Argv, attr, p.group); err == nil {
		err = s.reaper.start(p, spare.Go, "", start.Argv, attr)
	}
	if err != nil {
		spare.End()
		return err
	}
	spare.Close()
	return nil
}

// stockAfter is the delay before the zygote forks for the next command, so that it doesn't slow
// down the beginning of this one.
const stockAfter = 30 * time.Millisecond

// stock makes a child of the zygote wait for the next command in p's group, after stockAfter or when
// p ends. The child would count for a limit of processes, so then it waits for the end.
func (s *Starter) stock(p *process) {
	soon := time.After(stockAfter)
	if p.exact {
		soon = nil
	}
	go func() { // ends when the child waits, or couldn't be forked
		select {
		case <-p.exited:
		case <-soon:
		}
		_ = s.warm.Stock(p.group) // the next start reports an error
	}()
}

// WarmUp loads the interpreter at path, and forks a child for the first command.
func (s *Starter) WarmUp(want agent.Warm, path string) (agent.Warmed, error) {
	if !s.marking {
		return agent.Warmed{}, &agent.Error{Code: agent.ErrDenied, Message: "no interpreter can be preloaded here, because commands have no user of their own"}
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
