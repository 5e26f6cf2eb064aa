package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/runtime"
)

// restoreEnvironments reads the stored environments. One that can't be read is skipped and reported,
// and stays stored until it is put again.
func (c *Cluster) restoreEnvironments(ctx context.Context) error {
	return c.config.Store.Environments(ctx, func(env runtime.Environment, unreadable error) error {
		if unreadable != nil {
			c.problems.Report("environment "+string(env.ID), fmt.Sprintf("its record can't be read, so it is unavailable until you put it again: %v", unreadable))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if unreadable != nil {
			c.unreadable[env.ID] = true
		} else {
			c.environments[env.ID] = env
		}
		return nil
	})
}

// PutEnvironment implements runtime.Cluster, and starts pulling the environment's image.
// INVALID_INPUT also names an environment that this machine can't run, such as one with an
// isolation tier that is unavailable now, or with a network while none is offered.
func (c *Cluster) PutEnvironment(ctx context.Context, env runtime.Environment) error {
	if err := c.supported(env); err != nil {
		return err
	}
	if err := c.host.HasTier(ctx, env); err != nil {
		return err
	}
	// The image of the revision before may be unused afterwards.
	defer c.images.Review()
	if err := c.environmentTurn.Do(ctx, func() error { return c.putEnvironment(ctx, env) }); err != nil {
		return err
	}
	c.wantImage(env)
	c.cached.Send()
	return nil
}

// putEnvironment stores an environment, and then its copy in memory. The caller holds
// environmentTurn.
func (c *Cluster) putEnvironment(ctx context.Context, env runtime.Environment) error {
	c.mu.Lock()
	unreadable := c.unreadable[env.ID]
	c.mu.Unlock()
	if unreadable { // its revision is unknown: it is replaced as a whole
		if err := c.config.Store.DeleteEnvironment(ctx, env.ID); err != nil {
			return err
		}
	}
	if err := c.config.Store.PutEnvironment(ctx, env); err != nil {
		return err
	}
	if unreadable {
		c.problems.Resolve("environment " + string(env.ID))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unreadable, env.ID)
	c.environments[env.ID] = env
	return nil
}

// supported returns INVALID_INPUT, naming the field, for an environment that this cluster's
// configuration can't run.
func (c *Cluster) supported(env runtime.Environment) error {
	if err := sandbox.Supported(env); err != nil {
		return err
	}
	return c.network.Supported(env.Network)
}

// PutFirst stores all of the environments if none is stored yet, else none. They must need no
// image, network or runtime.
func (c *Cluster) PutFirst(ctx context.Context, environments []runtime.Environment) error {
	defer c.cached.Send()
	return c.environmentTurn.Do(ctx, func() error {
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
	// The environment's image may be unused afterwards.
	defer c.images.Review()
	return c.environmentTurn.Do(ctx, func() error {
		if err := c.config.Store.DeleteEnvironment(ctx, id); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.environments, id)
		return nil
	})
}

// Environments implements runtime.Cluster, from memory.
func (c *Cluster) Environments(context.Context) ([]runtime.Environment, error) {
	return c.allEnvironments(), nil
}

// allEnvironments returns the environments in memory, in any order.
func (c *Cluster) allEnvironments() []runtime.Environment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.environments))
}

// runCaches makes the caches of languages when environments need them, until ctx ends.
func (c *Cluster) runCaches(ctx context.Context) {
	for ctx.Err() == nil {
		_ = c.MakeCaches(ctx, func(string) {}) // Status reports it
		select {
		case <-c.cached:
		case <-ctx.Done():
		}
	}
}

// MakeCaches makes the missing caches of the languages whose environments use this machine's programs. It calls begin
// with a language's name if its cache is missing. Status reports its errors, too.
func (c *Cluster) MakeCaches(ctx context.Context, begin func(language string)) (failed error) {
	if c.config.Languages == nil {
		return nil
	}
	environments := c.allEnvironments()
	for _, r := range c.config.Languages.All() {
		if len(r.Cache.Make) == 0 || !slices.ContainsFunc(environments, func(env runtime.Environment) bool {
			return env.Image == runtime.DefaultImage && slices.Contains(r.Environments, env.ID)
		}) {
			continue
		}
		subject := "cache of " + r.ID
		made, err := c.host.MakeCache(ctx, r, func() { begin(r.Name) })
		switch {
		case ctx.Err() != nil:
		case err != nil:
			err = fmt.Errorf("the cache of %s can't be made, so its programs take longer: %w", r.Name, err)
			c.problems.Report(subject, err.Error())
		default:
			c.problems.Resolve(subject)
		}
		if made {
			c.config.Logger.Info("made the cache of a language", zap.String("language", r.ID))
		}
		failed = errors.Join(failed, err)
	}
	return failed
}
