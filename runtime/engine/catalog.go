package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
)

// A catalog holds the environments that are served, and their pools. Its lock is never
// held across I/O.
type catalog struct {
	changing chan struct{} // holds a token while an environment is changed

	mu           sync.Mutex // guards what follows
	environments map[runtime.EnvironmentID]runtime.Environment
	pools        map[runtime.EnvironmentID]*pool.Pool // also of deleted environments that still have claimed runners
	poolsChanged chan struct{}                        // closed and replaced when a pool comes
}

func newCatalog() *catalog {
	return &catalog{
		changing:     make(chan struct{}, 1),
		environments: map[runtime.EnvironmentID]runtime.Environment{},
		pools:        map[runtime.EnvironmentID]*pool.Pool{},
		poolsChanged: make(chan struct{}),
	}
}

// beginChange waits for the turn to change environments: changes follow one
// another, so that the pools see them in the order in which they were stored.
func (c *catalog) beginChange(ctx context.Context) (done func(), err error) {
	select {
	case c.changing <- struct{}{}:
		return func() { <-c.changing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// all returns the environments, sorted by id.
func (c *catalog) all() []runtime.Environment {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.environments))
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b runtime.Environment) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// of returns how many environments a tenant has.
func (c *catalog) of(id runtime.TenantID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, env := range c.environments {
		if env.Tenant == id {
			n++
		}
	}
	return n
}

// environment returns one, and whether there is one.
func (c *catalog) environment(id runtime.EnvironmentID) (runtime.Environment, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	env, ok := c.environments[id]
	return env, ok
}

// put serves env, unless a newer revision is served. It returns its pool, nil if there is none.
func (c *catalog) put(env runtime.Environment) *pool.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.environments[env.ID].Revision < env.Revision {
		c.environments[env.ID] = env
	}
	return c.pools[env.ID]
}

// replace serves env, whatever was served before.
func (c *catalog) replace(env runtime.Environment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.environments[env.ID] = env
}

// remove stops serving an environment, and returns its pool, nil if there is none.
func (c *catalog) remove(id runtime.EnvironmentID) *pool.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.environments, id)
	return c.pools[id]
}

// pool returns a pool, or nil; also that of a deleted environment.
func (c *catalog) pool(id runtime.EnvironmentID) *pool.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pools[id]
}

// poolOfServed returns the pool of an environment that is served, or nil.
func (c *catalog) poolOfServed(id runtime.EnvironmentID) *pool.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, served := c.environments[id]; !served {
		return nil
	}
	return c.pools[id]
}

// allPools returns the pools, and what is closed when another one comes.
func (c *catalog) allPools() ([]*pool.Pool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.pools)), c.poolsChanged
}

// addPool adds the pool that create returns, unless there is one that hasn't ended: then it
// returns nil. Create and removePool's removed are called under the lock.
func (c *catalog) addPool(id runtime.EnvironmentID, create func() *pool.Pool) *pool.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pools[id]; p != nil && !p.Ended() {
		return nil
	}
	p := create()
	c.pools[id] = p
	close(c.poolsChanged)
	c.poolsChanged = make(chan struct{})
	return p
}

// removePool removes a pool and calls removed, unless another pool has replaced it.
func (c *catalog) removePool(id runtime.EnvironmentID, p *pool.Pool, removed func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pools[id] == p {
		delete(c.pools, id)
		removed()
	}
}
