package nomad

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/rockpool/rockpool/agent/bridge"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
)

// Dial implements runtime.Cluster. It returns RUNNER_GONE for a runner that doesn't exist, and
// CLUSTER_UNAVAILABLE while it starts or can't be reached. If the runner's bridge must be opened,
// Dial waits for that.
func (c *Cluster) Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	c.runners.mu.Lock()
	e, err := c.runners.find(id)
	if err == nil && e.ready == nil {
		err = runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s is starting", id)
	}
	claimed := err == nil && e.runner.Claim.Held()
	c.runners.mu.Unlock()
	if err != nil {
		return nil, err
	}
	conn, err := c.stream(ctx, id, claimed)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, errNoSpareBridge):
		return nil, runtime.Wrap(runtime.CodeClusterUnavailable, err, "runner %s has no open bridge", id)
	}
	// The error alone doesn't say whether the runner ended or can't be reached. The caller needs to
	// know: only in the second case can a retry help.
	c.refresher.soon() // the runner may be gone
	c.runners.mu.Lock()
	_, there := c.runners.find(id)
	c.runners.mu.Unlock()
	switch {
	case there != nil:
		return nil, there
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, runtime.Wrap(runtime.CodeClusterUnavailable, c.nomad.Redact(err), "the agent of runner %s can't be reached", id)
}

// stream opens a stream. If the bridge turns out to be broken it tries once more.
func (c *Cluster) stream(ctx context.Context, id runtime.RunnerID, claimed bool) (net.Conn, error) {
	conn, err := c.bridges.Dial(ctx, id, claimed)
	if errors.Is(err, bridge.ErrBroken) {
		conn, err = c.bridges.Dial(ctx, id, claimed)
	}
	return conn, err
}

// openEarly opens a claimed runner's bridge early, and keeps it from being closed for an idle runner's.
func (c *Cluster) openEarly(id runtime.RunnerID) {
	c.group.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, openBridgeWithin)
		defer cancel()
		_ = c.bridges.Keep(ctx, id, true) // Dial tries again and reports the error
	})
}

func (c *Cluster) openBridge(ctx context.Context, id runtime.RunnerID) (bridgeSession, error) {
	var at location
	var access job.AgentAccess
	c.runners.mu.Lock()
	if e := c.runners.entries[id]; e != nil {
		at, access = e.location, e.access
	}
	c.runners.mu.Unlock()
	if at.allocation == "" {
		return nil, fmt.Errorf("runner %s has no allocation", id)
	}
	return c.config.openBridge(ctx, c.nomad, at.node, at.allocation, access)
}
