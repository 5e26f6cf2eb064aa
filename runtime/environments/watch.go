package environments

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/pool"
)

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
	var status runtime.PoolStatus
	if p := r.Pool(id); p != nil {
		status = p.Status()
	}
	c := activity.ComponentHealth{Name: activity.PoolComponent + string(id), Status: activity.HealthOK, Message: status.Reason}
	if alert := r.alert(id); alert.Standing() {
		c.Message = fmt.Sprintf("%d of %d runners are idle: %s", alert.Idle, alert.Size, alert.Reason)
	}
	if c.Message != "" && !r.Draining() { // a draining pool is meant to be empty
		c.Status = activity.HealthDegraded
	}
	return c
}

// alert returns the alert of an environment's pool; it is zero if there is none.
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
	ticker := time.NewTicker(runtime.SampleEvery)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
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
