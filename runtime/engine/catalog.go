package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
)

// A catalog holds the served environments and their pools. Its lock is never held across I/O.
type catalog struct {
	changing chan struct{} // capacity 1; holds a token while an environment is changed

	mu           sync.Mutex // guards the fields below
	environments map[runtime.EnvironmentID]runtime.Environment
	kept         map[runtime.EnvironmentID]*quota.Kept // as long as it is served or has a pool
	pools        map[runtime.EnvironmentID]*pool.Pool  // also of deleted environments that still have claimed runners
	poolsChanged chan struct{}                         // closed and replaced when a pool is added
}

func newCatalog() *catalog {
	return &catalog{
		changing:     make(chan struct{}, 1),
		environments: map[runtime.EnvironmentID]runtime.Environment{},
		kept:         map[runtime.EnvironmentID]*quota.Kept{},
		pools:        map[runtime.EnvironmentID]*pool.Pool{},
		poolsChanged: make(chan struct{}),
	}
}

// beginChange waits for its turn to change environments, until ctx ends. Changes run one at a time,
// so pools see them in the order in which they were stored.
func (c *catalog) beginChange(ctx context.Context) (done func(), err error) {
	select {
	case c.changing <- struct{}{}:
		return func() { <-c.changing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// all returns the environments, ordered by id.
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

// environment returns an environment, and whether it exists.
func (c *catalog) environment(id runtime.EnvironmentID) (runtime.Environment, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	env, ok := c.environments[id]
	return env, ok
}

// keep replaces the memory of an environment.
func (c *catalog) keep(id runtime.EnvironmentID, kept *quota.Kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept[id].Free()
	c.kept[id] = kept
	c.free(id)
}

// free frees the memory of an environment that is neither served nor has a pool. The caller holds mu.
func (c *catalog) free(id runtime.EnvironmentID) {
	if _, served := c.environments[id]; !served && c.pools[id] == nil {
		c.kept[id].Free()
		delete(c.kept, id)
	}
}

// put serves env unless a newer revision is served. It returns env's pool, or nil.
func (c *catalog) put(env runtime.Environment) *pool.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.environments[env.ID].Revision < env.Revision {
		c.environments[env.ID] = env
	}
	return c.pools[env.ID]
}

// replace serves env even if a newer revision was served before.
func (c *catalog) replace(env runtime.Environment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.environments[env.ID] = env
}

// remove stops serving an environment, and returns its pool, or nil.
func (c *catalog) remove(id runtime.EnvironmentID) *pool.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.environments, id)
	c.free(id)
	return c.pools[id]
}

// pool returns an environment's pool, or nil. Deleted environments keep theirs until it ends.
func (c *catalog) pool(id runtime.EnvironmentID) *pool.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pools[id]
}

// poolOfServed returns the pool of a served environment, or nil.
func (c *catalog) poolOfServed(id runtime.EnvironmentID) *pool.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, served := c.environments[id]; !served {
		return nil
	}
	return c.pools[id]
}

// allPools returns all pools, and a channel that is closed when another one is added.
func (c *catalog) allPools() ([]*pool.Pool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.pools)), c.poolsChanged
}

// addPool adds the pool that create returns. If there is one that hasn't ended, it returns nil
// instead. It calls create under the lock, as removePool calls removed.
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
		c.free(id)
		removed()
	}
}
