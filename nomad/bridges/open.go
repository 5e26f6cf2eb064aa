package bridges

import (
	"context"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/bridge"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/turns"
)

// A Target is where a runner's agent is.
type Target struct {
	Runner     runtime.RunnerID
	Allocation string
	Node       string // "": unknown
	Way        job.Way
}

// An Opener opens bridges by alloc exec.
type Opener struct {
	nomad   *connection.Client
	execs   turns.Slots // of commands in runners without an agent
	log     *zap.Logger
	missing func(id runtime.RunnerID, what []string)
}

// NewOpener returns an opener. In runners without an agent it runs at most execs commands
// at once, and reports what such a runner misses.
func NewOpener(nomad *connection.Client, execs int, log *zap.Logger, missing func(id runtime.RunnerID, what []string)) *Opener {
	return &Opener{nomad, make(turns.Slots, execs), log, missing}
}

// Open runs the agent's bridge in a runner's task, and returns once the agent has answered
// through it. Where there is no agent, the session serves its protocol by Nomad's own exec.
func (o *Opener) Open(ctx context.Context, at Target) (Session, error) {
	if len(at.Way.Command) == 0 {
		return o.openPlain(ctx, at)
	}
	conn, err := o.nomad.Exec(ctx, at.Node, at.Allocation, at.Way.Task, at.Way.Command)
	if err != nil {
		return nil, err
	}
	s, err := bridge.NewClient(conn)
	if err != nil {
		return nil, err
	}
	stream, err := s.Dial(ctx)
	if err == nil {
		_, err = agent.PingAgent(ctx, stream)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}
