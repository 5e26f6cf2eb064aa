package process

import (
	"errors"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/warm"
)

// executeWarm starts a command from the zygote. It reports whether it did: otherwise nothing of the
// command runs, and p says why.
func (s *Starter) executeWarm(p *process, start agent.Start, dir string, candidates []string, attr *syscall.ProcAttr) bool {
	if s.Warm == nil || !s.marking {
		return false
	}
	var command warm.Command
	if command, p.how.cold = s.Warm.Command(start, dir, candidates); p.how.cold != "" || command == (warm.Command{}) {
		return false
	}
	defer s.stock(p.group, p.exited)
	spare, err := s.Warm.Take(p.group)
	if err == nil {
		err = s.reaper.start(p, spare.Launch(command, s.kernelLimits(start)), candidates[0], start.Argv, attr)
	}
	if err == nil && p.heldUp {
		s.giveUp(p)
		err, p.heldUp = errors.New("the start was held up"), false
		p.exited = make(chan struct{})
	}
	if err != nil {
		p.how.cold = "the zygote: " + err.Error()
		return false
	}
	p.how = temperature{warm: true}
	return true
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
		_ = s.Warm.Stock(group) // the next start says what is wrong
	}()
}

// WarmUp has the interpreter loaded that commands start from, and a child of it wait for the first
// one.
func (s *Starter) WarmUp(want agent.Warm, path string) (agent.Warmed, error) {
	if s.Warm == nil || !s.marking {
		return agent.Warmed{}, &agent.Error{Code: agent.ErrDenied, Message: "commands have no user of their own here, so no interpreter can be loaded for them"}
	}
	warmed, err := s.Warm.Prepare(want, path)
	if err != nil || s.Groups == nil {
		return warmed, err
	}
	group, err := s.Groups.Take(false)
	if err != nil {
		return warmed, err
	}
	defer s.Groups.Give(group)
	return warmed, s.Warm.Stock(group)
}
