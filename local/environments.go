package local

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/runtime"
)

// PutEnvironment returns INVALID_INPUT, too, for an environment that can't be
// run here: an isolation that can't be had now, a network that isn't offered. It has the
// environment's image pulled.
func (c *Cluster) PutEnvironment(ctx context.Context, env runtime.Environment) error {
	if err := c.supported(env); err != nil {
		return err
	}
	if err := c.available(ctx, env); err != nil {
		return err
	}
	defer c.images.Review()
	return c.envTurn.Do(ctx, func() error {
		c.mu.Lock()
		unreadable := c.unreadable[env.ID]
		c.mu.Unlock()
		if unreadable { // so nobody knows its revision; it is replaced as a whole
			if err := c.config.Store.DeleteEnvironment(ctx, env.ID); err != nil {
				return err
			}
		}
		if err := c.config.Store.PutEnvironment(ctx, env); err != nil {
			return err
		}
		c.mu.Lock()
		if unreadable {
			delete(c.unreadable, env.ID)
			c.problems.Resolve("environment " + string(env.ID))
		}
		c.environments[env.ID] = env
		c.mu.Unlock()
		c.wantImage(env)
		return nil
	})
}

// supported returns INVALID_INPUT, naming the field, for an environment that
// can't be run here.
func (c *Cluster) supported(env runtime.Environment) error {
	if err := sandbox.Supported(env); err != nil {
		return err
	}
	return c.network.Supported(env.Network)
}

// PutFirst stores environments where there is none at all, all of them or none.
// They need no image, network or runtime of the machine's.
func (c *Cluster) PutFirst(ctx context.Context, environments []runtime.Environment) error {
	return c.envTurn.Do(ctx, func() error {
		stored, err := c.config.Store.PutFirst(ctx, environments)
		if err != nil || !stored {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, env := range environments {
			c.environments[env.ID] = env
		}
		return nil
	})
}

// DeleteEnvironment implements runtime.Cluster.
func (c *Cluster) DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID) error {
	defer c.images.Review()
	return c.envTurn.Do(ctx, func() error {
		if err := c.config.Store.DeleteEnvironment(ctx, id); err != nil {
			return err
		}
		c.mu.Lock()
		delete(c.environments, id)
		c.mu.Unlock()
		return nil
	})
}

// Environments implements runtime.Cluster, from memory.
func (c *Cluster) Environments(context.Context) ([]runtime.Environment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.environments)), nil
}

// restoreEnvironments reads those that are stored. One that can't be read is
// skipped, and told, and stays stored until it is put again.
func (c *Cluster) restoreEnvironments(ctx context.Context) error {
	return c.config.Store.Environments(ctx, func(env runtime.Environment, unreadable error) error {
		if unreadable == nil {
			c.environments[env.ID] = env
			return nil
		}
		c.unreadable[env.ID] = true
		c.problems.Report("environment "+string(env.ID), fmt.Sprintf("its record can't be read, so it isn't served: put it again (%v)", unreadable))
		return nil
	})
}
