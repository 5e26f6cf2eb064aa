package nomad

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/plain"
	"github.com/rockpool/rockpool/runtime"
)

// openPlain serves the agent's protocol for a runner without an agent.
func (c *Cluster) openPlain(ctx context.Context, e *entry, allocation string, way bridgeWay) (session, error) {
	exec := plain.Allocation{Client: c.nomad.calls, ID: allocation, Task: way.Task}
	r, err := plain.Open(ctx, limited{exec, c.execs}, plain.Config{
		Name: allocation, Workspace: way.Workspace,
		Report: func(err error) {
			c.log.Warn("a runner without an agent", zap.String("runner", string(e.id)), zap.Error(c.redact(err)))
		},
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	env := e.runner.Environment.ID
	c.mu.Unlock()
	c.problems.Report(agentlessSubject(env), fmt.Sprintf("its runners have no agent, so they are slower and can do less: %s", strings.Join(r.Missing(), "; ")))
	return &plainSession{Runner: r, done: make(chan struct{})}, nil
}

func agentlessSubject(id runtime.EnvironmentID) string {
	return fmt.Sprintf("environment %s without the agent", id)
}

// limited bounds how many execs run at once: each holds a connection to Nomad.
type limited struct {
	exec   plain.Exec
	tokens chan struct{}
}

// Exec implements plain.Exec.
func (l limited) Exec(ctx context.Context, command plain.Command) (int, error) {
	select {
	case l.tokens <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { <-l.tokens }()
	return l.exec.Exec(ctx, command)
}

// A plainSession is a plain.Runner. It holds no connection while nothing runs,
// and its end is that of what runs, so that it makes room for none.
type plainSession struct {
	*plain.Runner
	close sync.Once
	done  chan struct{}
}

// Dial implements session.
func (s *plainSession) Dial(ctx context.Context) (net.Conn, error) { return s.Runner.Dial(ctx) }

// Done implements session.
func (s *plainSession) Done() <-chan struct{} { return s.done }

// Close implements session.
func (s *plainSession) Close() error {
	s.close.Do(func() {
		s.Runner.Close()
		close(s.done)
	})
	return nil
}
