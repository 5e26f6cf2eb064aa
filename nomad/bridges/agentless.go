package bridges

import (
	"context"
	"net"
	"sync"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/plain"
	"github.com/rockpool/rockpool/runtime/turns"
)

// openPlain serves the agent's protocol for a runner without an agent.
func (o *Opener) openPlain(ctx context.Context, at Target) (Session, error) {
	exec := plain.Allocation{Client: o.nomad.PlainAPI(), ID: at.Allocation, Task: at.Way.Task}
	r, err := plain.Open(ctx, limited{exec, o.execs}, plain.Config{
		Name: at.Allocation, Workspace: at.Way.Workspace,
		Report: func(err error) {
			o.log.Warn("a runner without an agent", zap.String("runner", string(at.Runner)), zap.Error(o.nomad.Redact(err)))
		},
	})
	if err != nil {
		return nil, err
	}
	o.missing(at.Runner, r.Missing())
	return &plainSession{Runner: r, done: make(chan struct{})}, nil
}

// limited bounds how many execs run at once: each holds a connection to Nomad.
type limited struct {
	exec  plain.Exec
	slots turns.Slots
}

// Exec implements plain.Exec.
func (l limited) Exec(ctx context.Context, command plain.Command) (code int, err error) {
	err = l.slots.Do(ctx, func() error {
		code, err = l.exec.Exec(ctx, command)
		return err
	})
	return code, err
}

// A plainSession is a plain.Runner. It holds no connection while nothing runs,
// and its end is that of what runs, so that it makes room for none.
type plainSession struct {
	*plain.Runner
	close sync.Once
	done  chan struct{}
}

// Dial implements Session.
func (s *plainSession) Dial(ctx context.Context) (net.Conn, error) { return s.Runner.Dial(ctx) }

// Done implements Session.
func (s *plainSession) Done() <-chan struct{} { return s.done }

// Close implements Session.
func (s *plainSession) Close() error {
	s.close.Do(func() {
		s.Runner.Close()
		close(s.done)
	})
	return nil
}
