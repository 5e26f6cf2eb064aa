package quota

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

// An account counts the use of one tenant.
type account struct {
	tenant runtime.TenantID
	clock  timing.Clock // of days, so that no step of the wall clock begins one
	began  time.Time    // from which claims are timed by the monotonic clock

	mu      sync.Mutex // guards the fields below
	limits  limits
	taken   [resources]int64
	pending int64                // of taken[Runners]: those of claims that still wait
	waiting [resources]list.List // of chan struct{}, each closed when served; empty while there is room
	claims  window
	day     string        // of cpu and output, in UTC
	cpu     time.Duration // processor time used on that day
	output  int64         // bytes printed on that day
}

// set replaces the limits, and admits the waiting callers that now fit.
func (a *account) set(q runtime.Quotas) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = limitsOf(q)
	for r := range resources {
		a.serve(r)
	}
}

// acquire counts n uses of a resource, or returns QUOTA_EXCEEDED.
func (a *account) acquire(r Resource, n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.full(r, n); err != nil {
		return err
	}
	a.taken[r] += n
	return nil
}

// room returns what acquire would return, and counts nothing.
func (a *account) room(r Resource) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.full(r, 1)
}

// full returns QUOTA_EXCEEDED if n more would exceed the limit. The caller holds mu.
func (a *account) full(r Resource, n int64) error {
	if a.limits.reached(r, a.taken[r]+n-1) {
		return a.exceeded(r, a.held(r), n, 0)
	}
	return nil
}

// held returns how much the tenant really has, without pending runners. The caller holds mu.
func (a *account) held(r Resource) int64 {
	if r == Runners {
		return a.taken[r] - a.pending
	}
	return a.taken[r]
}

// pend changes by n how many of the taken runners belong to claims that still wait.
func (a *account) pend(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending += n
}

// release gives back n units, which may admit waiting callers.
func (a *account) release(r Resource, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(r, n)
}

// put releases n. The caller holds mu.
func (a *account) put(r Resource, n int64) {
	a.taken[r] = max(0, a.taken[r]-n)
	a.serve(r)
}

// serve gives free units to the waiting callers. The caller holds mu.
func (a *account) serve(r Resource) {
	for first := a.waiting[r].Front(); first != nil && !a.limits.reached(r, a.taken[r]); first = a.waiting[r].Front() {
		a.taken[r]++
		close(a.waiting[r].Remove(first).(chan struct{}))
	}
}

// wait waits until a caller may acquire the resource, in order of arrival, for at most longest.
// After that, it returns QUOTA_EXCEEDED.
func (a *account) wait(ctx context.Context, r Resource, longest time.Duration) error {
	served := make(chan struct{})
	a.mu.Lock()
	// Each caller joins the queue first, so that it overtakes no earlier one.
	place := a.waiting[r].PushBack(served)
	a.serve(r)
	a.mu.Unlock()
	late := time.NewTimer(longest)
	defer late.Stop()
	select {
	case <-served:
		return nil
	case <-late.C:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-served: // served at the same moment
		if ctx.Err() == nil {
			return nil
		}
		// The caller gave up, so its unit goes to the next one.
		a.put(r, 1)
	default:
		a.waiting[r].Remove(place)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return a.exceeded(r, a.held(r), 1, 0)
}

// adopt takes n units without checking the limit.
func (a *account) adopt(r Resource, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken[r] += n
}

// claim counts a claim of the last minute, or returns QUOTA_EXCEEDED with when the next one fits.
func (a *account) claim() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Since(a.began)
	a.claims.forget(now)
	if limit := a.limits[claims]; a.limits.reached(claims, a.claims.len()) {
		return a.exceeded(claims, a.claims.len(), 1, a.claims.free(now, limit))
	}
	a.claims.add(now, a.limits[claims])
	return nil
}

// start returns QUOTA_EXCEEDED if the day's processor time or output is used up.
func (a *account) start() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	a.turn(now)
	if used := int64(a.cpu / time.Second); a.limits.reached(cpu, used) {
		return a.exceeded(cpu, used, 1, untilMidnight(now))
	}
	if a.limits.reached(output, a.output) {
		return a.exceeded(output, a.output, 1, untilMidnight(now))
	}
	return nil
}

// spend adds usage to that of today.
func (a *account) spend(used time.Duration, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(a.clock.Now())
	a.cpu += max(0, used)
	a.output += max(0, bytes)
}

// turn starts a new day if necessary. The caller holds mu.
func (a *account) turn(now time.Time) {
	if day := dayOf(now); day != a.day {
		a.day, a.cpu, a.output = day, 0, 0
	}
}

// usage returns what the tenant uses now, with its limits.
func (a *account) usage() Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claims.forget(time.Since(a.began))
	a.turn(a.clock.Now())
	held := func(r Resource) Amount { return a.limits.amount(r, a.held(r)) }
	return Usage{
		Tenant: a.tenant, Runners: held(Runners), Waiting: held(Waiting), Executions: held(Executions), Subscriptions: held(Subscriptions),
		PoolRunners: held(PoolRunners), MemoryMiB: held(MemoryMiB), CPUMHz: held(CPUMHz),
		ClaimsPerMinute:   a.limits.amount(claims, a.claims.len()),
		CPUSecondsPerDay:  a.limits.amount(cpu, int64(a.cpu/time.Second)),
		OutputBytesPerDay: a.limits.amount(output, a.output),
	}
}

// dayOf returns the day of t in UTC. Days are only compared.
func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// untilMidnight returns how long the present day in UTC still lasts.
func untilMidnight(now time.Time) time.Duration {
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}
