package bridges

import (
	"context"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/bridge"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
)

// Open starts the agent's bridge in a task of an allocation by alloc exec, and returns when the agent
// has answered through it. The node may be unknown.
func Open(ctx context.Context, nomad *connection.Client, node, allocation string, access job.AgentAccess) (Session, error) {
	conn, err := nomad.Exec(ctx, node, allocation, access.Task, access.Command)
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
