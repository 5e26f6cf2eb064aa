package local

import (
	"context"
	"maps"
	"slices"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/runtime"
)

// PutEnvironment returns INVALID_INPUT, too, for an environment that can't be
// run here yet: another image than "host", another isolation than NAMESPACES,
// a network.
func (c *Cluster) PutEnvironment(ctx context.Context, env runtime.Environment) error {
	if err := sandbox.Supported(env); err != nil {
		return err
	}
	return c.writeEnvironment(ctx, func() error {
		if err := c.config.Store.PutEnvironment(ctx, env); err != nil {
			return err
		}
		c.mu.Lock()
		c.environments[env.ID] = env
		c.mu.Unlock()
		return nil
	})
}

// DeleteEnvironment implements runtime.Cluster.
func (c *Cluster) DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID) error {
	return c.writeEnvironment(ctx, func() error {
		if err := c.config.Store.DeleteEnvironment(ctx, id); err != nil {
			return err
		}
		c.mu.Lock()
		delete(c.environments, id)
		c.mu.Unlock()
		return nil
	})
}

func (c *Cluster) writeEnvironment(ctx context.Context, write func() error) error {
	select {
	case c.envTurn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.envTurn }()
	return write()
}

// Environments implements runtime.Cluster, from memory.
func (c *Cluster) Environments(context.Context) ([]runtime.Environment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.environments)), nil
}
