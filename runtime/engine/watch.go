package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/pool"
)

// PoolStatus returns the latest snapshot of an environment's pool, and whether there is a pool.
func (e *Engine) PoolStatus(id runtime.EnvironmentID) (runtime.PoolStatus, bool) {
	p := e.catalog.pool(id)
	if p == nil {
		return runtime.PoolStatus{}, false
	}
	return p.Status(), true
}

// StartDurations returns how long an environment's runners took to become ready, counting those that
// this server started.
func (e *Engine) StartDurations(id runtime.EnvironmentID) runtime.Distribution {
	p := e.catalog.pool(id)
	if p == nil {
		return runtime.Distribution{}
	}
	return p.StartDurations()
}

// PoolHistory returns samples of an environment's pool in the last hour, oldest first, as far as this
// server ran.
func (e *Engine) PoolHistory(id runtime.EnvironmentID) []runtime.PoolSample {
	p := e.catalog.pool(id)
	if p == nil {
		return nil
	}
	return p.History()
}

// ClaimStats returns the counters of an environment's claims since this server started.
func (e *Engine) ClaimStats(id runtime.EnvironmentID) runtime.ClaimStats {
	p := e.catalog.pool(id)
	if p == nil {
		return runtime.ClaimStats{}
	}
	return p.ClaimStats()
}

// sample makes each pool record a sample every SampleEvery until ctx ends.
func (e *Engine) sample(ctx context.Context) {
	ticker := time.NewTicker(runtime.SampleEvery)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			all, _ := e.catalog.allPools()
			for _, p := range all {
				p.Sample(now)
			}
		case <-ctx.Done():
			return
		}
	}
}

// PoolAlerts returns the standing alerts of environments that the caller sees, ordered by environment.
func (e *Engine) PoolAlerts(sees func(runtime.Environment) bool) []runtime.PoolAlert {
	alerts := []runtime.PoolAlert{}
	for _, env := range e.Environments() {
		if alert := e.poolAlert(env.ID); alert.Standing() && sees(env) {
			alerts = append(alerts, alert)
		}
	}
	return alerts
}

// PoolAlertHistory returns the latest alerts that were raised or resolved since this server started,
// newest first, of environments that the caller saw then.
func (e *Engine) PoolAlertHistory(sees func(runtime.Environment) bool) []runtime.PoolAlert {
	return e.alerts.Latest(sees)
}

// Activity returns counts of what happens now, of a tenant or, for nil, of all.
func (e *Engine) Activity(ctx context.Context, tenant *runtime.TenantID) runtime.Activity {
	a := runtime.Activity{Draining: e.Draining()}
	a.ExecutionsRunning, a.ExecutionsPending = e.sessions.count(tenant)
	a.FailuresPerMinute = e.failures.Count(e.clock.Now(), func(id runtime.TenantID) bool { return tenant == nil || id == *tenant })
	_, a.ClaimsWaiting = e.WaitingClaims(ctx, WaitingFilter{Tenant: tenant}, 0, "")
	return a
}

// poolAlert returns the alert of an environment's pool; it is zero if there is none.
func (e *Engine) poolAlert(id runtime.EnvironmentID) runtime.PoolAlert {
	p := e.catalog.pool(id)
	if p == nil {
		return runtime.PoolAlert{}
	}
	alert, _ := p.WatchAlert()
	return alert
}

// WatchPools sends a snapshot of each pool, then each change. A slow receiver gets only the latest. The
// last snapshot of a pool has Deleted set. For "" it watches all pools, including later ones. For an id
// it watches one pool, and closes the channel after its last snapshot. It also closes it when ctx ends.
// It leaves out environments that the receiver doesn't see.
func (e *Engine) WatchPools(ctx context.Context, id runtime.EnvironmentID, sees func(runtime.Environment) bool) (<-chan runtime.PoolStatus, error) {
	return watchPools(ctx, e, id, sees, WatchPools, (*pool.Pool).Watch, func(runtime.PoolStatus) bool { return true })
}

// WatchPoolAlerts sends the standing alerts, then each change. A slow receiver gets only the latest. id,
// sees and the channel's end are as in WatchPools.
func (e *Engine) WatchPoolAlerts(ctx context.Context, id runtime.EnvironmentID, sees func(runtime.Environment) bool) (<-chan runtime.PoolAlert, error) {
	return watchPools(ctx, e, id, sees, WatchPoolAlerts, (*pool.Pool).WatchAlert, runtime.PoolAlert.Standing)
}

// watchPools sends what look returns for pools. The first value of a pool is sent only if it stands.
func watchPools[T any](ctx context.Context, e *Engine, id runtime.EnvironmentID, sees func(runtime.Environment) bool, kind WatchKind,
	look func(*pool.Pool) (T, <-chan struct{}), stands func(T) bool) (<-chan T, error) {
	var only *pool.Pool
	if id != "" {
		var err error
		if only, err = e.pool(id); err != nil {
			return nil, err
		}
	}
	out := make(chan T)
	return out, e.Go(ctx, func(ctx context.Context) {
		defer close(out)
		defer e.CountSubscription(kind)()
		follow := func(p *pool.Pool) {
			followPool(ctx, p, out, look, func(value T) bool { return stands(value) && sees(e.environmentOf(p)) }, func() bool { return sees(e.environmentOf(p)) })
		}
		if only != nil {
			follow(only)
			return
		}
		e.followPools(ctx, follow)
	})
}

// followPools calls follow for every pool, present and later ones, each in a goroutine. It returns when
// ctx has ended and all of them have.
func (e *Engine) followPools(ctx context.Context, follow func(*pool.Pool)) {
	var group sync.WaitGroup
	defer group.Wait()
	var followed []*pool.Pool
	for {
		there, changed := e.catalog.allPools()
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
func (e *Engine) environmentOf(p *pool.Pool) runtime.Environment {
	last := p.Environment()
	if env, ok := e.Environment(last.ID); ok {
		return env
	}
	return last
}

// followPool sends what look returns for a pool until the pool or ctx ends. It sends the first value only
// if it stands, and nothing that the receiver doesn't see.
func followPool[T any](ctx context.Context, p *pool.Pool, out chan<- T, look func(*pool.Pool) (T, <-chan struct{}), stands func(T) bool, sees func() bool) {
	value, changed := look(p)
	if !stands(value) {
		changed = next(ctx, p, changed)
	}
	for changed != nil {
		value, changed = look(p)
		if !sees() {
			changed = next(ctx, p, changed)
			continue
		}
		select {
		case out <- value:
			changed = next(ctx, p, changed)
		case <-changed: // not received yet: send the newer value instead
		case <-ctx.Done():
			return
		}
	}
}

// next waits for a change of p. It returns nil if there will be none.
func next(ctx context.Context, p *pool.Pool, changed <-chan struct{}) <-chan struct{} {
	select {
	case <-changed:
		return changed
	case <-ctx.Done():
		return nil
	case <-p.Closed():
	}
	select {
	case <-changed: // the last change came just before the end
		return changed
	default:
		return nil
	}
}

// WatchRunners sends each runner, then each change of a state, with GONE as a runner's last. It
// watches all runners, or those of one environment. A slow receiver gets only the latest state of
// each runner, and nothing about runners that came and went meanwhile. So pending events are
// bounded by the number of runners. No state is sent twice in a row. The channel is closed when ctx
// ends; with an environment also after its deletion, following its last runner's GONE. Runners that
// the receiver doesn't see are left out.
func (e *Engine) WatchRunners(ctx context.Context, id runtime.EnvironmentID, sees func(runtime.Runner) bool) (<-chan events.RunnerEvent, error) {
	var ended <-chan struct{} // of all environments: never
	if id != "" {
		p, err := e.pool(id)
		if err != nil {
			return nil, err
		}
		ended = p.Closed()
	}
	w := e.runners.feed.Watch(id, sees, func(put func(runtime.Runner)) {
		for _, r := range e.Runners(RunnerFilter{EnvironmentID: id}) {
			put(r)
		}
	})
	out := make(chan events.RunnerEvent)
	err := e.Go(ctx, func(ctx context.Context) {
		defer close(out)
		defer e.CountSubscription(WatchRunners)()
		defer e.runners.feed.Remove(w)
		w.Send(ctx, ended, out)
	})
	if err != nil {
		e.runners.feed.Remove(w)
	}
	return out, err
}
