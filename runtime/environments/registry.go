// Package environments serves environments and their pools. A [Registry] has them; a [Service] lets
// callers use it: each of its methods authorises, acts and records.
//
// Changes of environments run one at a time. Each is stored by the cluster before a pool sees it.
package environments

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/usage"
)

// Config are a Registry's dependencies.
type Config struct {
	Cluster runtime.Cluster
	Logger  *zap.Logger
	Usage   *usage.Tracker // counts what pools reserve
	Memory  *quota.Memory
	Counts  *activity.Counts
	Alerts  *activity.Alerts
	Jobs    Jobs
	// NewPool makes the pool of an environment. known are its runners; with nil, the pool lists them.
	// busy is the number of running executions by runner.
	NewPool func(env runtime.Environment, known []runtime.Runner, busy map[runtime.RunnerID]int) *pool.Pool
}

// Jobs are goroutines that their provider waits for.
type Jobs interface {
	// Add starts a job. Its context ends when it has to end.
	Add(job func(context.Context)) error
	// Go starts a job whose context ends with ctx, too.
	Go(ctx context.Context, job func(context.Context)) error
}

// A Registry has the served environments and their pools. It checks no caller. Its lock is never held
// across I/O.
type Registry struct {
	Config
	changing chan struct{} // capacity 1; holds a token while an environment is changed

	mu           sync.Mutex // guards the fields below
	environments map[runtime.EnvironmentID]runtime.Environment
	kept         map[runtime.EnvironmentID]*quota.Kept // as long as it is served or has a pool
	pools        map[runtime.EnvironmentID]*pool.Pool  // also of deleted environments that still have claimed runners
	poolsChanged chan struct{}                         // closed and replaced when a pool is added
}

// NewRegistry returns a Registry without environments.
func NewRegistry(c Config) *Registry {
	return &Registry{
		Config:       c,
		changing:     make(chan struct{}, 1),
		environments: map[runtime.EnvironmentID]runtime.Environment{},
		kept:         map[runtime.EnvironmentID]*quota.Kept{},
		pools:        map[runtime.EnvironmentID]*pool.Pool{},
		poolsChanged: make(chan struct{}),
	}
}

// beginChange waits for its turn to change environments, until ctx ends. Changes run one at a time,
// so pools see them in the order in which they were stored.
func (r *Registry) beginChange(ctx context.Context) (done func(), err error) {
	select {
	case r.changing <- struct{}{}:
		return func() { <-r.changing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// All returns the environments, ordered by id.
func (r *Registry) All() []runtime.Environment {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.environments))
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b runtime.Environment) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func (r *Registry) count(id runtime.TenantID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, env := range r.environments {
		if env.Tenant == id {
			n++
		}
	}
	return n
}

// Get returns an environment, and whether it exists.
func (r *Registry) Get(id runtime.EnvironmentID) (runtime.Environment, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	env, ok := r.environments[id]
	return env, ok
}

// keep replaces the memory of an environment.
func (r *Registry) keep(env runtime.Environment) {
	kept := r.Memory.Adopt(env.Tenant, bytesOf(env))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[env.ID].Free()
	r.kept[env.ID] = kept
	r.free(env.ID)
}

// free frees the memory of an environment that is neither served nor has a pool. The caller holds mu.
func (r *Registry) free(id runtime.EnvironmentID) {
	if _, served := r.environments[id]; !served && r.pools[id] == nil {
		r.kept[id].Free()
		delete(r.kept, id)
	}
}

// serve serves env unless a newer revision is served. It returns env's pool, or nil.
func (r *Registry) serve(env runtime.Environment) *pool.Pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.environments[env.ID].Revision <= env.Revision {
		r.environments[env.ID] = env
	}
	return r.pools[env.ID]
}

// remove stops serving an environment, and returns its pool, or nil.
func (r *Registry) remove(id runtime.EnvironmentID) *pool.Pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.environments, id)
	r.free(id)
	return r.pools[id]
}

// Pool returns an environment's pool, or nil. Deleted environments keep theirs until it ends.
func (r *Registry) Pool(id runtime.EnvironmentID) *pool.Pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pools[id]
}

// Served returns the pool of a served environment, or ENVIRONMENT_NOT_FOUND.
func (r *Registry) Served(id runtime.EnvironmentID) (*pool.Pool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pools[id]
	if _, served := r.environments[id]; !served || p == nil {
		return nil, NotFound(id)
	}
	return p, nil
}

// Pools returns all pools, and a channel that is closed when another one is added.
func (r *Registry) Pools() ([]*pool.Pool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.pools)), r.poolsChanged
}

// openPool makes and runs the pool of an environment, unless there is one that hasn't ended. known and
// busy are those of Config.NewPool. The pool of a deleted environment removes its runners.
func (r *Registry) openPool(ctx context.Context, env runtime.Environment, known []runtime.Runner, busy map[runtime.RunnerID]int, deleted bool) error {
	r.mu.Lock()
	if p := r.pools[env.ID]; p != nil && !p.Ended() {
		r.mu.Unlock()
		return nil
	}
	r.Counts.OpenPool(env.ID)
	p := r.NewPool(env, known, busy)
	r.pools[env.ID] = p
	close(r.poolsChanged)
	r.poolsChanged = make(chan struct{})
	r.mu.Unlock()
	err := r.Jobs.Add(func(ctx context.Context) {
		_ = p.Run(ctx) // ends with ctx, or when a deleted environment's last runner is gone
		r.removePool(env.ID, p)
	})
	if err == nil && deleted {
		err = p.Delete(ctx, false)
	}
	return err
}

// removePool removes a pool that has ended, unless another one has replaced it.
func (r *Registry) removePool(id runtime.EnvironmentID, p *pool.Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pools[id] == p {
		delete(r.pools, id)
		r.free(id)
		r.Counts.ClosePool(id)
	}
}

// Restore serves the environments that a starting server finds. RestorePools opens their pools.
func (r *Registry) Restore(environments []runtime.Environment) {
	for _, env := range environments {
		r.serve(env)
		r.adoptEnvironment(env)
	}
}

// RestorePools opens the pools of all environments with their known runners, and of those that are
// deleted but still have runners. busy is that of Config.NewPool.
func (r *Registry) RestorePools(ctx context.Context, known map[runtime.EnvironmentID][]runtime.Runner, busy map[runtime.RunnerID]int) error {
	for _, env := range r.All() {
		// Never nil: that would mean unknown.
		if err := r.openPool(ctx, env, append([]runtime.Runner{}, known[env.ID]...), busy, false); err != nil {
			return err
		}
		delete(known, env.ID)
	}
	for _, orphans := range known { // of deleted environments
		if err := r.openPool(ctx, orphans[0].Environment, orphans, busy, true); err != nil {
			return err
		}
	}
	return nil
}

// RemoveTenant calls remove if a tenant has no environments, and otherwise returns CONFLICT. None can be
// created meanwhile.
func (r *Registry) RemoveTenant(ctx context.Context, id runtime.TenantID, remove func() error) error {
	done, err := r.beginChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	for _, env := range r.All() {
		if env.Tenant == id {
			return runtime.Errorf(runtime.CodeConflict, "tenant %s still has the environment %s: delete its environments first", id, env.ID)
		}
	}
	return remove()
}

// NotFound returns ENVIRONMENT_NOT_FOUND for an id.
func NotFound(id runtime.EnvironmentID) error {
	return runtime.Errorf(runtime.CodeEnvironmentNotFound, "environment %q doesn't exist: list environments, or create it with putEnvironment", id)
}

// A Drainer is a cluster that can be drained through this server. While it drains, it removes
// unclaimed runners, starts none, and reports Draining in its status. SetDraining is idempotent;
// Draining doesn't block.
type Drainer interface {
	SetDraining(ctx context.Context, draining bool) error
	Draining() bool
}

// Draining reports whether the cluster is being drained.
func (r *Registry) Draining() bool {
	d, ok := r.Cluster.(Drainer)
	return ok && d.Draining()
}

// Health returns the components of all pools.
func (r *Registry) Health() []activity.ComponentHealth {
	var all []activity.ComponentHealth
	for _, env := range r.All() {
		all = append(all, r.health(env.ID))
	}
	return all
}

// health returns a pool's component: degraded while its alert stands or it has a reason for
// missing runners, except while the cluster is being drained.
func (r *Registry) health(id runtime.EnvironmentID) activity.ComponentHealth {
	status := ofPool(r, id, (*pool.Pool).Status)
	c := activity.ComponentHealth{Name: activity.PoolComponent + string(id), Status: activity.HealthOK, Message: status.Reason}
	if alert := r.alert(id); alert.Standing() {
		c.Message = fmt.Sprintf("%d of %d runners are idle: %s", alert.Idle, alert.Size, alert.Reason)
	}
	if c.Message != "" && !r.Draining() { // a draining pool is meant to be empty
		c.Status = activity.HealthDegraded
	}
	return c
}

func (r *Registry) alert(id runtime.EnvironmentID) (alert runtime.PoolAlert) {
	if p := r.Pool(id); p != nil {
		alert, _ = p.WatchAlert()
	}
	return alert
}

// Stats returns the status of each pool, ordered by environment.
func (r *Registry) Stats() []activity.PoolStats {
	pools, _ := r.Pools()
	all := make([]activity.PoolStats, len(pools))
	for i, p := range pools {
		alert, _ := p.WatchAlert()
		all[i] = activity.PoolStats{PoolStatus: p.Status(), Alert: alert.Standing()}
	}
	slices.SortFunc(all, func(a, b activity.PoolStats) int { return cmp.Compare(a.EnvironmentID, b.EnvironmentID) })
	return all
}

// Sample makes each pool record a sample every SampleEvery until ctx ends.
func (r *Registry) Sample(ctx context.Context) {
	for tick := time.Tick(runtime.SampleEvery); ; {
		select {
		case now := <-tick:
			all, _ := r.Pools()
			for _, p := range all {
				p.Sample(now)
			}
		case <-ctx.Done():
			return
		}
	}
}

// followPools calls follow for every pool, present and later ones, each in a goroutine. It returns when
// ctx has ended and all of them have.
func (r *Registry) followPools(ctx context.Context, follow func(*pool.Pool)) {
	var group sync.WaitGroup
	defer group.Wait()
	var followed []*pool.Pool
	for {
		there, changed := r.Pools()
		for _, p := range there {
			if !slices.Contains(followed, p) {
				group.Go(func() { follow(p) })
			}
		}
		followed = there
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// environmentOf returns the environment of a pool as served, or as it was last if it was deleted.
func (r *Registry) environmentOf(p *pool.Pool) runtime.Environment {
	last := p.Environment()
	if env, ok := r.Get(last.ID); ok {
		return env
	}
	return last
}
