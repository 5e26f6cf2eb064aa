// Package quota bounds what each tenant takes. A [Ledger] counts it, and refuses what goes beyond the tenant's
// [runtime.Quotas] with QUOTA_EXCEEDED.
//
// A quota is never exceeded by one, however many callers take at the same time: the check and the count are one
// step. Three things can make a count larger than its limit: a limit that is lowered, Adopt, and the day's use of
// executions that were running when the day's limit was reached.
package quota

import (
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
)

// A Ledger has an account for each tenant. A tenant for which SetTenant wasn't called is unbounded, and is counted all
// the same. All methods are safe for concurrent use, and only Load waits for I/O.
type Ledger struct {
	began time.Time

	mu       sync.RWMutex // guards accounts
	accounts map[runtime.TenantID]*account
}

// New returns a ledger in which nothing is taken.
func New() *Ledger {
	return &Ledger{began: time.Now(), accounts: map[runtime.TenantID]*account{}}
}

// Days has what tenants used on earlier days. [store.Store] implements it.
type Days interface {
	DayUse(ctx context.Context, day time.Time) ([]store.TenantDay, error)
}

// Load adds what is stored of today's use. Call it once, before the first Spend.
func (l *Ledger) Load(ctx context.Context, days Days) error {
	today := time.Now()
	use, err := days.DayUse(ctx, today)
	if err != nil {
		return err
	}
	for _, u := range use {
		l.account(u.Tenant).spend(today, u.CPU, u.OutputBytes)
	}
	return nil
}

// SetTenant makes a tenant's quotas the bounds from now on. What it holds stays, even if that is more. Claims of
// the last 60 seconds count, but of a tenant that was unbounded only the last 100,000.
func (l *Ledger) SetTenant(t runtime.Tenant) { l.account(t.ID).set(t.Quotas) }

// Remove makes a tenant unbounded. What it holds is given back as before.
func (l *Ledger) Remove(id runtime.TenantID) { l.account(id).set(runtime.Quotas{}) }

// account returns a tenant's. It stays for as long as the ledger: what was taken on it is given back to it.
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

func (l *Ledger) open(id runtime.TenantID) *account {
	return &account{tenant: id, began: l.began, limits: limitsOf(runtime.Quotas{})}
}

// Acquire takes one. It returns QUOTA_EXCEEDED, and takes nothing, if the tenant has as many as it may.
func (l *Ledger) Acquire(id runtime.TenantID, r Resource) error { return l.account(id).acquire(r) }

// Room returns what Acquire would, and takes nothing.
func (l *Ledger) Room(id runtime.TenantID, r Resource) error { return l.account(id).room(r) }

// Wait takes one as Acquire does, and waits for it if it has to: until something of this tenant goes, or its quotas
// change. Waiting callers are served in the order in which they came. After longest it returns
// Acquire's error; if ctx ends first, ctx's cause.
func (l *Ledger) Wait(ctx context.Context, id runtime.TenantID, r Resource, longest time.Duration) error {
	return l.account(id).wait(ctx, r, longest)
}

// Release gives back what Acquire, Wait or Adopt took. Giving back more than that does nothing.
func (l *Ledger) Release(id runtime.TenantID, r Resource) { l.account(id).release(r) }

// Pend changes by n how many of the taken runners belong to claims that still wait.
func (l *Ledger) Pend(id runtime.TenantID, n int64) { l.account(id).pend(n) }

// Adopt takes n, whatever the limit: a server that starts finds them taken.
func (l *Ledger) Adopt(id runtime.TenantID, r Resource, n int) { l.account(id).adopt(r, n) }

// Claim counts a claim, whatever becomes of it. It returns QUOTA_EXCEEDED, and counts nothing, if ClaimsPerMinute
// claims were counted within the last 60 seconds. RetryAfter is exactly until one more is allowed.
func (l *Ledger) Claim(id runtime.TenantID) error { return l.account(id).claim() }

// Start returns QUOTA_EXCEEDED if the executions that ended today (UTC) used up what the tenant has for a day.
// RetryAfter is exactly until midnight. What runs on isn't counted yet: see Spend.
func (l *Ledger) Start(id runtime.TenantID) error { return l.account(id).start() }

// Spend counts what an execution used for the day (UTC) on which it ended. Call it once for each that has
// finished, after the store has it.
func (l *Ledger) Spend(x runtime.Execution) {
	l.account(x.Tenant).spend(x.Marks.FinishedAt, x.Usage.User+x.Usage.System, x.Usage.OutputBytes)
}

// Usage returns what a tenant has taken, and its limits.
func (l *Ledger) Usage(id runtime.TenantID) Usage {
	l.mu.RLock()
	a := l.accounts[id]
	l.mu.RUnlock()
	if a == nil {
		a = l.open(id) // asking makes no account
	}
	return a.usage()
}
