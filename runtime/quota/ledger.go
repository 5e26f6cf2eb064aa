// Package quota limits what each tenant uses. A [Ledger] counts it, and refuses what exceeds the tenant's
// [runtime.Quotas] with QUOTA_EXCEEDED.
//
// Check and count are one atomic step, so concurrent callers can't exceed a quota. A count can be
// larger than its limit for three reasons only: the limit was lowered, Adopt was called, or
// executions ran on after the day's limit was reached.
package quota

import (
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/timing"
)

// A Ledger has an account for each tenant. A tenant without SetTenant is counted but not limited.
// All methods are safe for concurrent use, and only Load does I/O.
type Ledger struct {
	clock timing.Clock

	mu       sync.RWMutex // guards accounts
	accounts map[runtime.TenantID]*account
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{clock: timing.NewClock(), accounts: map[runtime.TenantID]*account{}}
}

// Days has the stored usage of tenants by day. [store.Store] implements it.
type Days interface {
	DayUse(ctx context.Context, day time.Time) ([]store.TenantDay, error)
}

// Load adds today's stored usage. Call it once, before the first Spend.
func (l *Ledger) Load(ctx context.Context, days Days) error {
	use, err := days.DayUse(ctx, l.clock.Now())
	if err != nil {
		return err
	}
	for _, u := range use {
		l.account(u.Tenant).spend(u.CPU, u.OutputBytes)
	}
	return nil
}

// SetTenant sets a tenant's quotas from now on. The tenant keeps what it has, even if that is more.
// Claims of the last 60 seconds count; of a tenant that was unlimited, only the last 100,000 do.
func (l *Ledger) SetTenant(t runtime.Tenant) { l.account(t.ID).set(t.Quotas) }

// Remove removes a tenant's limits. It releases what it has as before.
func (l *Ledger) Remove(id runtime.TenantID) { l.account(id).set(runtime.Quotas{}) }

// account returns a tenant's account. It exists as long as the ledger, because later releases need it.
func (l *Ledger) account(id runtime.TenantID) *account {
	l.mu.RLock()
	a := l.accounts[id]
	l.mu.RUnlock()
	if a != nil {
		return a
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a = l.accounts[id]; a == nil {
		a = l.open(id)
		l.accounts[id] = a
	}
	return a
}

// open returns a new account without limits. It doesn't add it to the ledger.
func (l *Ledger) open(id runtime.TenantID) *account {
	return &account{tenant: id, clock: l.clock, began: l.clock.Now(), limits: limitsOf(runtime.Quotas{})}
}

// Acquire takes one unit. It returns QUOTA_EXCEEDED, and takes nothing, if the limit is reached.
func (l *Ledger) Acquire(id runtime.TenantID, r Resource) error { return l.account(id).acquire(r, 1) }

// AcquireAll takes some of several resources, or nothing. It returns QUOTA_EXCEEDED for the first whose
// limit would be exceeded.
func (l *Ledger) AcquireAll(id runtime.TenantID, some Amounts) error {
	a := l.account(id)
	for r, n := range some {
		if n <= 0 { // even if a lowered limit is exceeded
			continue
		}
		if err := a.acquire(Resource(r), n); err != nil {
			for taken, n := range some[:r] {
				a.release(Resource(taken), max(0, n))
			}
			return err
		}
	}
	return nil
}

// AdoptAll takes some of several resources even beyond the limit.
func (l *Ledger) AdoptAll(id runtime.TenantID, some Amounts) {
	for r, n := range some {
		l.account(id).adopt(Resource(r), max(0, n))
	}
}

// ReleaseAll releases some of several resources.
func (l *Ledger) ReleaseAll(id runtime.TenantID, some Amounts) {
	for r, n := range some {
		l.account(id).release(Resource(r), max(0, n))
	}
}

// Room returns what Acquire would return, and takes nothing.
func (l *Ledger) Room(id runtime.TenantID, r Resource) error { return l.account(id).room(r) }

// Wait is like Acquire but waits if the limit is reached, until the tenant releases something or
// its quotas change. Waiting callers are served in order of arrival. After longest it returns
// QUOTA_EXCEEDED; if ctx ends first, ctx's cause.
func (l *Ledger) Wait(ctx context.Context, id runtime.TenantID, r Resource, longest time.Duration) error {
	return l.account(id).wait(ctx, r, longest)
}

// Release releases what Acquire, Wait or Adopt took. Releasing more than that does nothing.
func (l *Ledger) Release(id runtime.TenantID, r Resource) { l.account(id).release(r, 1) }

// Pend changes by n how many of the acquired runners belong to claims that still wait.
func (l *Ledger) Pend(id runtime.TenantID, n int64) { l.account(id).pend(n) }

// Adopt takes n units even beyond the limit, for what a starting server finds in use.
func (l *Ledger) Adopt(id runtime.TenantID, r Resource, n int) { l.account(id).adopt(r, int64(n)) }

// Claim counts a claim, whatever its result. It returns QUOTA_EXCEEDED, and counts nothing, if
// ClaimsPerMinute claims were counted within the last 60 seconds. RetryAfter is exactly the time
// until one more is allowed.
func (l *Ledger) Claim(id runtime.TenantID) error { return l.account(id).claim() }

// Start returns QUOTA_EXCEEDED if the executions that ended today (UTC) used up the tenant's quota
// of a day. RetryAfter is exactly the time until midnight. Running executions aren't counted yet:
// see Spend.
func (l *Ledger) Start(id runtime.TenantID) error { return l.account(id).start() }

// Spend counts what an execution used for the present day (UTC). Call it once for each finished
// execution, after it is stored.
func (l *Ledger) Spend(x runtime.Execution) {
	l.account(x.Tenant).spend(x.Usage.User+x.Usage.System, x.Usage.OutputBytes)
}

// Usage returns what a tenant uses, and its limits.
func (l *Ledger) Usage(id runtime.TenantID) Usage {
	l.mu.RLock()
	a := l.accounts[id]
	l.mu.RUnlock()
	if a == nil {
		a = l.open(id) // reading usage creates no account
	}
	return a.usage()
}
