package local

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/tiers"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/health"
)

// environments is the stored environments, cached in memory. Its methods are safe for concurrent
// use.
type environments struct {
	store    Store
	problems *health.Problems
	turn     fairqueue.Slots // capacity 1: held while an environment is written to the store, then to memory

	mu         sync.Mutex // guards the fields below
	known      map[runtime.EnvironmentID]runtime.Environment
	unreadable map[runtime.EnvironmentID]bool
}

// newEnvironments returns an empty cache; restore fills it.
func newEnvironments(store Store, problems *health.Problems) *environments {
	return &environments{
		store: store, problems: problems, turn: make(fairqueue.Slots, 1),
		known: map[runtime.EnvironmentID]runtime.Environment{}, unreadable: map[runtime.EnvironmentID]bool{},
	}
}

// restore reads the stored environments. One that can't be read is skipped and reported, and stays
// stored until it is put again.
func (s *environments) restore(ctx context.Context) error {
	return s.store.Environments(ctx, func(env runtime.Environment, unreadable error) error {
		if unreadable == nil {
			s.keep(env)
			return nil
		}
		s.problems.Report(environmentSubject(env.ID), fmt.Sprintf("its record can't be read, so it is unavailable until you put it again: %v", unreadable))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unreadable[env.ID] = true
		return nil
	})
}

// environmentSubject returns the subject of problems with an environment's record.
func environmentSubject(id runtime.EnvironmentID) string { return "environment " + string(id) }

// keep caches stored environments.
func (s *environments) keep(all ...runtime.Environment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, env := range all {
		s.known[env.ID] = env
	}
}

// all returns the cached environments, in any order.
func (s *environments) all() []runtime.Environment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.known))
}

// put stores an environment, then caches it. An unreadable record is deleted first.
func (s *environments) put(ctx context.Context, env runtime.Environment) error {
	return s.turn.Do(ctx, func() error {
		s.mu.Lock()
		unreadable := s.unreadable[env.ID]
		s.mu.Unlock()
		if unreadable { // its revision is unknown: it is replaced as a whole
			if err := s.store.DeleteEnvironment(ctx, env.ID); err != nil {
				return err
			}
		}
		if err := s.store.PutEnvironment(ctx, env); err != nil {
			return err
		}
		if unreadable {
			s.problems.Resolve(environmentSubject(env.ID))
			s.mu.Lock()
			delete(s.unreadable, env.ID)
			s.mu.Unlock()
		}
		s.keep(env)
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
	if err := tiers.Available(ctx, c.host, env); err != nil {
		return err
	}
	// The image of the revision before may be unused afterwards.
	defer c.images.Review()
	if err := c.environments.put(ctx, env); err != nil {
		return err
	}
	c.wantImage(env)
	c.wantCaches()
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
	s := c.environments
	defer c.wantCaches()
	return s.turn.Do(ctx, func() error {
		stored, err := s.store.PutFirst(ctx, environments)
		if err == nil && stored {
			s.keep(environments...)
		}
		return err
	})
}

// DeleteEnvironment implements runtime.Cluster.
func (c *Cluster) DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID) error {
	// The environment's image may be unused afterwards.
	defer c.images.Review()
	s := c.environments
	return s.turn.Do(ctx, func() error {
		if err := s.store.DeleteEnvironment(ctx, id); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.known, id)
		return nil
	})
}

// Environments implements runtime.Cluster, from memory.
func (c *Cluster) Environments(context.Context) ([]runtime.Environment, error) {
	return c.environments.all(), nil
}
