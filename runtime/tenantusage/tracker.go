// Package tenantusage counts what tenants use: runners, waiting claims, executions, the sizes of pools,
// and stored inputs. Each is acquired from the tenant's quotas before it is made, and released when it
// ends. Runners and executions of an earlier server are adopted, whatever the quotas. Methods are safe for concurrent
// use, except those of reservations.
package tenantusage

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
)

// Config are a Tracker's settings.
type Config struct {
	Quotas *quota.Ledger                                 // usage and quotas of tenants; nil: usage is counted without limits
	Memory *quota.Memory                                 // for waiting claims; nil: without a limit
	Weight func(id runtime.TenantID) int                 // turns of a tenant's waiting claims; nil: 1 for each tenant
	Runner func(runtime.RunnerID) (runtime.Runner, bool) // returns a runner that isn't gone
}

// A Tracker counts the runners, claims and executions of tenants, and what their pools reserve. Make
// it with New.
type Tracker struct {
	Config
	pools   map[runtime.EnvironmentID]reservation // see Reserve
	waiting waiting

	mu      sync.Mutex                       // guards the fields below, and the state of waiters
	runners map[runtime.RunnerID]reservation // runners that are counted
	Shares  quota.Bound                      // of waiting claims
}

// maxWaiting bounds the waiting claims of all tenants together. One tenant gets at most half.
const maxWaiting = 20_000

// waitingBytes is the memory of a waiting claim in addition to its texts: its goroutines. A test in
// test/e2e/api shows that a server survives as many as it admits.
const waitingBytes = 16 << 10

// New returns a Tracker that counts nothing yet.
func New(c Config) *Tracker {
	if c.Quotas == nil {
		c.Quotas = quota.New()
	}
	if c.Weight == nil {
		c.Weight = func(runtime.TenantID) int { return runtime.DefaultWeight }
	}
	return &Tracker{Config: c, runners: map[runtime.RunnerID]reservation{}, pools: map[runtime.EnvironmentID]reservation{},
		Shares: quota.Bound{Limit: maxWaiting, Quota: quota.Waiting.String(), Of: "waiting claims"}}
}

// Claim claims a runner for the claim's tenant. If the tenant has reached its quota of runners, the
// claim waits until one is released, as it would wait for an idle runner. All claims of a batch
// count as one, so that a batch that has begun isn't refused.
func (u *Tracker) Claim(ctx context.Context, p *pool.Pool, claim pool.Claim) (runtime.Runner, error) {
	tenant, began, later := claim.Claim.Tenant, time.Now(), request.LaterCase(claim.Claim.Key)
	claim.Weight = u.Weight(tenant)
	bytes := int64(0) // a ticket, which tracks the claim, keeps the memory
	if claim.Queued == nil {
		claim.Queued, bytes = pool.NewQueued(), waitingBytes+quota.BytesOfLabels(claim.Claim.Labels)
	}
	w := &waiter{
		claim: WaitingClaim{Tenant: tenant, EnvironmentID: p.Environment().ID, Since: began, ExpiresAt: began.Add(claim.WaitFor)},
		place: func(ctx context.Context) pool.Place { return p.Place(ctx, claim.Queued) },
		free:  later,
		bytes: bytes,
	}
	// The claim is counted as waiting only once it really waits: for the quota, or in the pool.
	begins := claim.OnQueue
	claim.OnQueue = func() error {
		if err := u.wait(w); err != nil || begins == nil {
			return err
		}
		return begins()
	}
	defer u.answered(w)
	if !later {
		if err := u.Quotas.Claim(tenant); err != nil {
			return runtime.Runner{}, err
		}
	}
	if err := u.acquire(ctx, claim, later); err != nil {
		return runtime.Runner{}, err
	}
	needs := quota.ReservedBy(p.Environment().Resources, 1)
	if later {
		u.Quotas.AdoptAll(tenant, needs)
	} else if err := u.Quotas.AcquireAll(tenant, needs); err != nil {
		u.Quotas.Release(tenant, quota.Runners)
		return runtime.Runner{}, err
	}
	if !later {
		// The wait for the quota is part of WaitFor.
		claim.WaitFor = max(claim.WaitFor-time.Since(began), 0)
	}
	u.Quotas.Pend(tenant, 1)
	r, err := p.Claim(ctx, claim)
	u.Quotas.Pend(tenant, -1)
	if err != nil {
		u.Quotas.Release(tenant, quota.Runners)
		u.Quotas.ReleaseAll(tenant, needs)
		return r, err
	}
	u.mu.Lock()
	u.runners[r.ID] = reservation{tenant, needs}
	u.mu.Unlock()
	// The runner may have ended before RunnerGone could find it.
	if now, ok := u.Runner(r.ID); !ok || now.State != runtime.RunnerClaimed {
		u.RunnerGone(r.ID)
	}
	return r, nil
}

// acquire takes a runner from the tenant's quota, and waits for it if the claim may wait. A later case of a
// batch waits without a limit.
func (u *Tracker) acquire(ctx context.Context, claim pool.Claim, later bool) error {
	tenant, longest := claim.Claim.Tenant, claim.WaitFor
	err := u.Quotas.Acquire(tenant, quota.Runners)
	if later {
		longest = math.MaxInt64
	}
	if err == nil || longest == 0 {
		return err
	}
	if err := claim.OnQueue(); err != nil {
		return err
	}
	return u.Quotas.Wait(ctx, tenant, quota.Runners, longest)
}

// wait counts a claim that begins to wait, once, until answered is called.
func (u *Tracker) wait(w *waiter) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if w.waits || w.answered {
		return nil
	}
	if tenant := w.claim.Tenant; !w.free {
		if err := u.Shares.Acquire(tenant); err != nil {
			return err
		}
		kept, err := u.Memory.Keep(tenant, w.bytes, "a waiting claim")
		if err == nil {
			err = u.Quotas.Acquire(tenant, quota.Waiting)
		}
		if err != nil {
			kept.Free()
			u.Shares.Release(tenant)
			return err
		}
		w.kept = kept
	}
	w.waits = true
	u.waiting.add(w)
	return nil
}

// answered ends what wait began, if anything.
func (u *Tracker) answered(w *waiter) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w.answered = true
	if !w.waits {
		return
	}
	u.waiting.remove(w)
	w.kept.Free()
	if !w.free {
		u.Shares.Release(w.claim.Tenant)
		u.Quotas.Release(w.claim.Tenant, quota.Waiting)
	}
}

// RunnerGone releases a removed runner. The owner goroutine of a pool calls it, so it must not block.
func (u *Tracker) RunnerGone(id runtime.RunnerID) {
	u.mu.Lock()
	of, held := u.runners[id]
	delete(u.runners, id)
	u.mu.Unlock()
	if held {
		u.Quotas.Release(of.tenant, quota.Runners)
		u.Quotas.ReleaseAll(of.tenant, of.amounts)
	}
}

// Adopt counts a runner that an earlier server handed out.
func (u *Tracker) Adopt(r runtime.Runner) {
	if r.State != runtime.RunnerClaimed {
		return
	}
	of := reservation{r.Claim.Tenant, quota.ReservedBy(r.Environment.Resources, 1)}
	u.Quotas.Adopt(of.tenant, quota.Runners, 1)
	u.Quotas.AdoptAll(of.tenant, of.amounts)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runners[r.ID] = of
}

// Begin acquires an execution from a tenant's quota. A batch acquires one for all its executions until
// it ends, so that a batch that has begun isn't refused.
func (u *Tracker) Begin(tenant runtime.TenantID) error {
	if err := u.Quotas.Start(tenant); err != nil {
		return err
	}
	return u.Quotas.Acquire(tenant, quota.Executions)
}

// End releases what Begin acquired.
func (u *Tracker) End(tenant runtime.TenantID) { u.Quotas.Release(tenant, quota.Executions) }

// Room returns QUOTA_EXCEEDED if Begin would, so that no runner is claimed needlessly.
func (u *Tracker) Room(tenant runtime.TenantID) error {
	if err := u.Quotas.Start(tenant); err != nil {
		return err
	}
	return u.Quotas.Room(tenant, quota.Executions)
}

// Ended releases an execution that isn't part of a batch, and counts what it used today.
func (u *Tracker) Ended(x runtime.Execution) {
	if x.Batch == nil {
		u.End(x.Tenant)
	}
	u.Quotas.Spend(x)
}
