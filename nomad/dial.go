package nomad

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/bridge"
	"github.com/rockpool/rockpool/runtime"
)

// Dial returns RUNNER_GONE for a runner that isn't there, and
// CLUSTER_UNAVAILABLE while it starts, or can't be reached. A stream that needs
// the runner's bridge anew waits for it.
func (c *Cluster) Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	e, err := c.find(id)
	claimed, starting := false, false
	if err == nil {
		claimed, starting = e.runner.Claim.Held(), e.ready == nil
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case starting:
		return nil, runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s is starting", id)
	}
	conn, err := c.stream(ctx, id, claimed)
	if err == nil {
		return conn, nil
	}
	c.lookSoon() // it may be gone
	c.mu.Lock()
	_, there := c.find(id)
	c.mu.Unlock()
	switch {
	case there != nil:
		return nil, there
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, runtime.Wrap(runtime.CodeClusterUnavailable, c.redact(err), "the agent of runner %s can't be reached", id)
}

// stream opens a stream, once more where the bridge turns out to be broken.
func (c *Cluster) stream(ctx context.Context, id runtime.RunnerID, claimed bool) (net.Conn, error) {
	conn, err := c.bridges.dial(ctx, id, claimed)
	if errors.Is(err, bridge.ErrBroken) {
		conn, err = c.bridges.dial(ctx, id, claimed)
	}
	return conn, err
}

// prefer opens a claimed runner's bridge, before anybody needs it, and keeps it
// from making room for one that is idle.
func (c *Cluster) prefer(id runtime.RunnerID) {
	c.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, openWithin)
		defer cancel()
		_ = c.bridges.keep(ctx, id, true) // Dial tries again, and tells
	})
}

// openBridge runs the agent's bridge in a runner's task, and returns once the
// agent has answered through it.
func (c *Cluster) openBridge(ctx context.Context, id runtime.RunnerID) (session, error) {
	c.mu.Lock()
	e := c.entries[id]
	allocation, node, way := "", "", bridgeWay{}
	if e != nil {
		allocation, node, way = e.allocation, e.node, e.way
	}
	c.mu.Unlock()
	if allocation == "" {
		return nil, fmt.Errorf("runner %s has no allocation", id)
	}
	if len(way.Command) == 0 {
		return c.openPlain(ctx, e, allocation, way)
	}
	if c.config.bridge != nil {
		return c.config.bridge(ctx, allocation)
	}
	conn, err := c.execNear(ctx, node, allocation, way)
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
