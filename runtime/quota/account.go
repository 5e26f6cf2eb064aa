package quota

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

// An Account counts the use of one tenant. Its methods are safe for concurrent use.
type Account struct {
	tenant runtime.TenantID
	clock  timing.Clock // of days, so that no step of the wall clock begins one
	began  time.Time    // from which claims are timed by the monotonic clock

	mu      sync.Mutex // guards the fields below
	limits  limits
	taken   [resources]int64
	pending int64                // of taken[Runners]: those of claims that still wait
	waiting [resources]list.List // of chan struct{}, each closed when served; empty while there is room
	claims  window
	day     time.Time     // of cpu and output; see dayOf
	cpu     time.Duration // processor time used on that day
	output  int64         // bytes printed on that day
}

// set replaces the limits, and admits the waiting callers that now fit.
func (a *Account) set(q runtime.Quotas) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = limitsOf(q)
	for r := range resources {
		a.serve(r)
	}
}

func only(r Resource, n int64) (some Amounts) {
	some[r] = n
	return some
}

// Acquire takes n units. It returns QUOTA_EXCEEDED, and takes nothing, if that would exceed the limit.
func (a *Account) Acquire(r Resource, n int64) error { return a.AcquireAll(only(r, n)) }

// AcquireAll takes some of several resources, or nothing. It returns QUOTA_EXCEEDED for the first whose
// limit would be exceeded. Amounts that aren't positive fit even if a lowered limit is exceeded.
func (a *Account) AcquireAll(some Amounts) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for r, n := range some {
		if n > 0 {
			if err := a.full(Resource(r), n); err != nil {
				return err
			}
		}
	}
	a.adopt(some)
	return nil
}

// adopt takes some of several resources. The caller holds mu.
func (a *Account) adopt(some Amounts) {
	for r, n := range some {
		a.taken[r] += max(0, n)
	}
}

// AdoptAll takes some of several resources even beyond the limit.
func (a *Account) AdoptAll(some Amounts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adopt(some)
}

// Adopt takes n units even beyond the limit, for what a starting server finds in use.
func (a *Account) Adopt(r Resource, n int64) { a.AdoptAll(only(r, n)) }

// Room returns what Acquire of one unit would return, and takes nothing.
func (a *Account) Room(r Resource) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.full(r, 1)
}

// full returns QUOTA_EXCEEDED if n more would exceed the limit. The caller holds mu.
func (a *Account) full(r Resource, n int64) error {
	if a.limits.reached(r, a.taken[r]+n-1) {
		return a.exceeded(r, a.held(r), n, 0)
	}
	return nil
}

// held returns how much the tenant really has, without pending runners. The caller holds mu.
func (a *Account) held(r Resource) int64 {
	if r == Runners {
		return a.taken[r] - a.pending
	}
	return a.taken[r]
}

// Pend changes by n how many of the acquired runners belong to claims that still wait.
func (a *Account) Pend(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending += n
}

// Release releases n units, which may admit waiting callers. Releasing more than are taken does nothing.
func (a *Account) Release(r Resource, n int64) { a.ReleaseAll(only(r, n)) }

// ReleaseAll releases some of several resources.
func (a *Account) ReleaseAll(some Amounts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for r, n := range some {
		a.put(Resource(r), max(0, n))
	}
}

// put releases n. The caller holds mu.
func (a *Account) put(r Resource, n int64) {
	a.taken[r] = max(0, a.taken[r]-n)
	a.serve(r)
}

// serve gives free units to the waiting callers. The caller holds mu.
func (a *Account) serve(r Resource) {
	for first := a.waiting[r].Front(); first != nil && !a.limits.reached(r, a.taken[r]); first = a.waiting[r].Front() {
		a.taken[r]++
		close(a.waiting[r].Remove(first).(chan struct{}))
	}
}

// Wait is like Acquire of one unit but waits if the limit is reached, until the tenant releases something
// or its quotas change. Waiting callers are served in order of arrival. After longest it returns
// QUOTA_EXCEEDED; if ctx ends first, ctx's cause.
func (a *Account) Wait(ctx context.Context, r Resource, longest time.Duration) error {
	served := make(chan struct{})
	a.mu.Lock()
	// Each caller joins the queue first, so that it overtakes no earlier one.
	element := a.waiting[r].PushBack(served)
	a.serve(r)
	a.mu.Unlock()
	select {
	case <-served:
		return nil
	case <-time.After(longest):
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
		a.waiting[r].Remove(element)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return a.exceeded(r, a.held(r), 1, 0)
}

// Claim counts a claim, whatever its result. It returns QUOTA_EXCEEDED, and counts nothing, if
// ClaimsPerMinute claims were counted within the last 60 seconds. RetryAfter is exactly the time
// until one more is allowed.
func (a *Account) Claim() error {
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

// Start returns QUOTA_EXCEEDED if the executions that ended today (UTC) used up the tenant's quota
// of a day. RetryAfter is exactly the time until midnight. Running executions aren't counted yet:
// see Spend.
func (a *Account) Start() error {
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

// Spend adds usage to that of the present day (UTC). Call it once for each finished execution, after it
// is stored.
func (a *Account) Spend(used time.Duration, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(a.clock.Now())
	a.cpu += max(0, used)
	a.output += max(0, bytes)
}

// turn starts a new day if necessary. The caller holds mu.
func (a *Account) turn(now time.Time) {
	if day := dayOf(now); !day.Equal(a.day) {
		a.day, a.cpu, a.output = day, 0, 0
	}
}

func (a *Account) usage() Usage {
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

// dayOf returns the beginning of t's day in UTC.
func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// untilMidnight returns how long the present day in UTC still lasts.
func untilMidnight(now time.Time) time.Duration {
	return dayOf(now).Add(24 * time.Hour).Sub(now)
}

// minute is the length of the window of claims.
const minute = 60 * time.Second

// mostUnlimited bounds the remembered claims of a tenant without a limit, to 800 kB. Its usage
// shows no more.
const mostUnlimited = 100_000

// A window contains the times of the claims of the last 60 seconds, oldest first, in 8 bytes each.
// There are at most as many as the limit allows, or mostUnlimited.
type window struct {
	times []time.Duration
	old   int // number of first times that have been dropped
}

// len returns the number of claims in the window, including those that forget would drop now.
func (w *window) len() int64 { return int64(len(w.times) - w.old) }

// forget drops claims that are 60 seconds old.
func (w *window) forget(now time.Duration) {
	for w.old < len(w.times) && now-w.times[w.old] >= minute {
		w.old++
	}
	switch {
	case w.old == len(w.times):
		w.times, w.old = nil, 0
	case w.old > len(w.times)/2: // each time is moved once on average
		w.times = append(make([]time.Duration, 0, len(w.times)), w.times[w.old:]...)
		w.old = 0
	}
}

func (w *window) add(now time.Duration, limit int64) {
	if limit == unlimited && w.len() == mostUnlimited {
		w.old++
		w.forget(now)
	}
	w.times = append(w.times, now)
}

// free returns the time until fewer than limit claims are younger than 60 seconds; 0 means never.
func (w *window) free(now time.Duration, limit int64) time.Duration {
	if limit == 0 {
		return 0
	}
	return w.times[int64(len(w.times))-limit] + minute - now
}
