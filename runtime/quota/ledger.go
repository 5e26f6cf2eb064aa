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
	accounts map[runtime.TenantID]*Account
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{clock: timing.NewClock(), accounts: map[runtime.TenantID]*Account{}}
}

// Days has the stored usage of tenants by day. [store.Store] implements it.
type Days interface {
	DayUse(ctx context.Context, day time.Time) ([]store.TenantDay, error)
}

// Load adds today's stored usage. Call it once, before the first Account.Spend.
func (l *Ledger) Load(ctx context.Context, days Days) error {
	use, err := days.DayUse(ctx, l.clock.Now())
	if err != nil {
		return err
	}
	for _, u := range use {
		l.Of(u.Tenant).Spend(u.CPU, u.OutputBytes)
	}
	return nil
}

// SetTenant sets a tenant's quotas from now on. The tenant keeps what it has, even if that is more.
// Claims of the last 60 seconds count; of a tenant that was unlimited, only the last 100,000 do.
func (l *Ledger) SetTenant(t runtime.Tenant) { l.Of(t.ID).set(t.Quotas) }

// Remove removes a tenant's limits. It releases what it has as before.
func (l *Ledger) Remove(id runtime.TenantID) { l.Of(id).set(runtime.Quotas{}) }

// Of returns a tenant's account. It exists as long as the ledger, because later releases need it.
func (l *Ledger) Of(id runtime.TenantID) *Account {
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
func (l *Ledger) open(id runtime.TenantID) *Account {
	return &Account{tenant: id, clock: l.clock, began: l.clock.Now(), limits: limitsOf(runtime.Quotas{})}
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
