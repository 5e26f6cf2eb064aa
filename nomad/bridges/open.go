package bridges

import (
	"context"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/bridge"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
)

// A Target is where a runner's agent is, and how to reach it.
type Target struct {
	Runner     runtime.RunnerID
	Allocation string
	Node       string // "": unknown
	Way        job.Way
}

// An Opener opens bridges by alloc exec. Its methods are safe for concurrent use.
type Opener struct {
	nomad *connection.Client
}

// NewOpener returns an opener.
func NewOpener(nomad *connection.Client) *Opener { return &Opener{nomad} }

// Open starts the agent's bridge in a runner's task, and returns when the agent has answered
// through it.
func (o *Opener) Open(ctx context.Context, at Target) (Session, error) {
	conn, err := o.nomad.Exec(ctx, at.Node, at.Allocation, at.Way.Task, at.Way.Command)
	if err != nil {
		return nil, err
	}
	s, err := bridge.NewClient(conn)
	if err != nil {
		return nil, err
	}
	// The exec starts even if no agent listens yet. Only an answer shows that the agent is ready.
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
