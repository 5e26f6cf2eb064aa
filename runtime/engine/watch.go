package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/runnerfeed"
)

// PoolStatus returns the newest snapshot of an environment's pool.
func (e *Engine) PoolStatus(id runtime.EnvironmentID) (runtime.PoolStatus, bool) {
	p := e.catalog.pool(id)
	if p == nil {
		return runtime.PoolStatus{}, false
	}
	return p.Status(), true
}

// StartDurations say how long an environment's runners took to become ready:
// of those that this server started.
func (e *Engine) StartDurations(id runtime.EnvironmentID) runtime.Distribution {
	p := e.catalog.pool(id)
	if p == nil {
		return runtime.Distribution{}
	}
	return p.StartDurations()
}

// PoolHistory returns what an environment's pool was like in the last hour,
// oldest first, as far as this server saw it.
func (e *Engine) PoolHistory(id runtime.EnvironmentID) []runtime.PoolSample {
	p := e.catalog.pool(id)
	if p == nil {
		return nil
	}
	return p.History()
}

// ClaimStats count the claims of an environment since this server began.
func (e *Engine) ClaimStats(id runtime.EnvironmentID) runtime.ClaimStats {
	p := e.catalog.pool(id)
	if p == nil {
		return runtime.ClaimStats{}
	}
	return p.ClaimStats()
}

// sample has each pool keep what it is like, again and again until ctx ends.
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

// PoolAlerts returns the alerts that stand, sorted by environment, of those that the caller
// sees.
func (e *Engine) PoolAlerts(sees func(runtime.Environment) bool) []runtime.PoolAlert {
	alerts := []runtime.PoolAlert{}
	for _, env := range e.Environments() {
		if alert := e.poolAlert(env.ID); alert.Standing() && sees(env) {
			alerts = append(alerts, alert)
		}
	}
	return alerts
}

// PoolAlertHistory returns the latest alerts that were raised or resolved since this server began, the
// newest first, of environments that the caller saw then.
func (e *Engine) PoolAlertHistory(sees func(runtime.Environment) bool) []runtime.PoolAlert {
	return e.alerts.Latest(sees)
}

// Activity returns what goes on now, of a tenant or, with nil, of all.
func (e *Engine) Activity(ctx context.Context, tenant *runtime.TenantID) runtime.Activity {
	a := runtime.Activity{Draining: e.Draining()}
	a.ExecutionsRunning, a.ExecutionsPending = e.sessions.count(tenant)
	a.FailuresPerMinute = e.failures.Count(time.Now(), func(id runtime.TenantID) bool { return tenant == nil || id == *tenant })
	_, a.ClaimsWaiting = e.WaitingClaims(ctx, WaitingFilter{Tenant: tenant}, 0, "")
	return a
}

func (e *Engine) poolAlert(id runtime.EnvironmentID) runtime.PoolAlert {
	p := e.catalog.pool(id)
	if p == nil {
		return runtime.PoolAlert{}
	}
	alert, _ := p.WatchAlert()
	return alert
}

// WatchPools sends a snapshot of each pool first, then each change, the latest
// only where the receiver is slow; the last of a pool has Deleted. With "" it
// watches all pools, also those to come; with an id that one, and the channel
// is closed after its last. It is closed too when ctx ends. It leaves out environments that
// the receiver doesn't see.
func (e *Engine) WatchPools(ctx context.Context, id runtime.EnvironmentID, sees func(runtime.Environment) bool) (<-chan runtime.PoolStatus, error) {
	return watchPools(ctx, e, id, sees, WatchPools, (*pool.Pool).Watch, func(runtime.PoolStatus) bool { return true })
}

// WatchPoolAlerts sends the alerts that stand, then each change, the latest
// only where the receiver is slow; id, sees and the channel's end are as those of
// WatchPools.
func (e *Engine) WatchPoolAlerts(ctx context.Context, id runtime.EnvironmentID, sees func(runtime.Environment) bool) (<-chan runtime.PoolAlert, error) {
	return watchPools(ctx, e, id, sees, WatchPoolAlerts, (*pool.Pool).WatchAlert, runtime.PoolAlert.Standing)
}

// watchPools sends what look returns of pools; what it returns first only if
// that stands.
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
		defer e.Watching(kind)()
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

// followPools has every pool followed, and those that come, until ctx ends.
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

// environmentOf returns the environment of a pool as it is served, or as it was last.
func (e *Engine) environmentOf(p *pool.Pool) runtime.Environment {
	last := p.Environment()
	if env, ok := e.Environment(last.ID); ok {
		return env
	}
	return last
}

// followPool sends what look returns of a pool until the pool or ctx ends: the first one only
// if it stands, and none that the receiver doesn't see.
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
		case <-changed: // nobody has taken it yet: the newer one goes instead
		case <-ctx.Done():
			return
		}
	}
}

// next waits for a change of p; it returns nil if none will come any more.
func next(ctx context.Context, p *pool.Pool, changed <-chan struct{}) <-chan struct{} {
	select {
	case <-changed:
		return changed
	case <-ctx.Done():
		return nil
	case <-p.Closed():
	}
	select {
	case <-changed: // its last word came just before its end
		return changed
	default:
		return nil
	}
}

// WatchRunners sends each runner that is there, then each change of a state,
// with GONE as a runner's last; all, or those of one environment. A slow
// receiver gets only the latest of each runner, and none of those that came and
// went meanwhile: what waits for it is bounded by the number of runners. None is
// sent as it was sent before. The channel is closed when ctx ends, and that of
// one environment after its deletion, with its last runner's GONE. It leaves out runners that
// the receiver doesn't see.
func (e *Engine) WatchRunners(ctx context.Context, id runtime.EnvironmentID, sees func(runtime.Runner) bool) (<-chan runnerfeed.Event, error) {
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
	out := make(chan runnerfeed.Event)
	err := e.Go(ctx, func(ctx context.Context) {
		defer close(out)
		defer e.Watching(WatchRunners)()
		defer e.runners.feed.Remove(w)
		w.Send(ctx, ended, out)
	})
	if err != nil {
		e.runners.feed.Remove(w)
	}
	return out, err
}
