// Package usage counts what tenants use: runners, waiting claims, executions, the sizes of pools,
// and stored inputs. Each is acquired from the tenant's quotas before it is made, and released when it
// ends. It also asks agents what their runners use; see Agents.
//
// Runners and executions of an earlier server are adopted, whatever the quotas. Methods are safe for
// concurrent use, except Reserve, AdoptReserved and ReleaseReserved: their caller holds the turn to change
// environments.
package usage

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
)

// Config are a Tracker's settings.
type Config struct {
	Quotas *quota.Ledger                                 // usage and quotas of tenants; nil means usage is counted without limits
	Memory *quota.Memory                                 // for waiting claims; nil means no limit
	Weight func(id runtime.TenantID) int                 // turns of a tenant's waiting claims; nil means one for each tenant
	Runner func(runtime.RunnerID) (runtime.Runner, bool) // returns a runner that isn't gone
}

// A Tracker counts the runners, claims and executions of tenants, and what their pools reserve. Make
// it with NewTracker.
type Tracker struct {
	Config
	pools map[runtime.EnvironmentID]reservation // see Reserve

	mu      sync.Mutex                       // guards the fields below, and the state of waiters
	runners map[runtime.RunnerID]reservation // runners that are counted
	waiting map[*waiter]struct{}
	shares  quota.Bound // of waiting claims
}

// A WaitingClaim is a claim that waits in its pool's queue, or for its tenant's quota of runners.
type WaitingClaim struct {
	ID            string // it sorts like a [runtime.RunnerID]
	Tenant        runtime.TenantID
	EnvironmentID runtime.EnvironmentID
	Position      int           // 1 is the next one; 0 means unknown yet, or it waits for its quota
	EstimatedWait time.Duration // 0 means unknown
	Since         time.Time
	ExpiresAt     time.Time // when its WaitFor ends
}

type waiter struct {
	claim    WaitingClaim                             // without its position
	position func(context.Context) pool.QueuePosition // its position in the pool's queue
	free     bool                                     // not counted against quotas
	bytes    int64                                    // of memory, while it waits

	queued, answered bool // guarded by Tracker.mu
	kept             *quota.Kept
}

// maxWaiting bounds the waiting claims of all tenants together. One tenant gets at most half.
const maxWaiting = 20_000

// waitingBytes is the memory of a waiting claim in addition to its texts: its goroutines. A test in
// test/e2e/api shows that a server survives as many as it admits.
const waitingBytes = 16 << 10

// NewTracker returns a Tracker that counts nothing yet.
func NewTracker(c Config) *Tracker {
	if c.Quotas == nil {
		c.Quotas = quota.New()
	}
	if c.Weight == nil {
		c.Weight = func(runtime.TenantID) int { return runtime.DefaultWeight }
	}
	return &Tracker{Config: c, runners: map[runtime.RunnerID]reservation{}, pools: map[runtime.EnvironmentID]reservation{}, waiting: map[*waiter]struct{}{},
		shares: quota.Bound{Limit: maxWaiting, Quota: quota.Waiting.String(), Of: "waiting claims"}}
}

// Claim claims a runner for the claim's tenant. If the tenant has reached its quota of runners, the
// claim waits until one is released, as it would wait for an idle runner. All claims of a batch
// count as one, so that a batch that has begun isn't refused.
func (u *Tracker) Claim(ctx context.Context, p *pool.Pool, claim pool.Claim) (runtime.Runner, error) {
	tenant, began, later := claim.Claim.Tenant, time.Now(), request.LaterCase(claim.Claim.Key)
	claim.Weight = u.Weight(tenant)
	account := u.Quotas.Of(tenant)
	bytes := int64(0) // a ticket, which tracks the claim, keeps the memory
	if claim.Queued == nil {
		claim.Queued, bytes = pool.NewQueued(), waitingBytes+quota.BytesOfLabels(claim.Claim.Labels)
	}
	w := &waiter{
		claim:    WaitingClaim{Tenant: tenant, EnvironmentID: p.Environment().ID, Since: began, ExpiresAt: began.Add(claim.WaitFor)},
		position: func(ctx context.Context) pool.QueuePosition { return p.QueuePosition(ctx, claim.Queued) },
		free:     later,
		bytes:    bytes,
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
		if err := account.Claim(); err != nil {
			return runtime.Runner{}, err
		}
	}
	if err := u.acquire(ctx, claim, later); err != nil {
		return runtime.Runner{}, err
	}
	needs := quota.ReservedBy(p.Environment().Resources, 1)
	if later {
		account.AdoptAll(needs)
	} else if err := account.AcquireAll(needs); err != nil {
		account.Release(quota.Runners, 1)
		return runtime.Runner{}, err
	}
	if !later {
		// The wait for the quota is part of WaitFor.
		claim.WaitFor = max(claim.WaitFor-time.Since(began), 0)
	}
	account.Pend(1)
	r, err := p.Claim(ctx, claim)
	account.Pend(-1)
	if err != nil {
		account.Release(quota.Runners, 1)
		account.ReleaseAll(needs)
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
	err := u.Quotas.Of(tenant).Acquire(quota.Runners, 1)
	if later {
		longest = math.MaxInt64
	}
	if err == nil || longest == 0 {
		return err
	}
	if err := claim.OnQueue(); err != nil {
		return err
	}
	return u.Quotas.Of(tenant).Wait(ctx, quota.Runners, longest)
}

// wait counts a claim that begins to wait, once, until answered is called.
func (u *Tracker) wait(w *waiter) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if w.queued || w.answered {
		return nil
	}
	if tenant := w.claim.Tenant; !w.free {
		if err := u.shares.Acquire(tenant); err != nil {
			return err
		}
		kept, err := u.Memory.Keep(tenant, w.bytes, "a waiting claim")
		if err == nil {
			err = u.Quotas.Of(tenant).Acquire(quota.Waiting, 1)
		}
		if err != nil {
			kept.Free()
			u.shares.Release(tenant)
			return err
		}
		w.kept = kept
	}
	w.queued = true
	w.claim.ID = runtime.NewWaitingID()
	u.waiting[w] = struct{}{}
	return nil
}

func (u *Tracker) answered(w *waiter) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w.answered = true
	if !w.queued {
		return
	}
	delete(u.waiting, w)
	w.kept.Free()
	if !w.free {
		u.shares.Release(w.claim.Tenant)
		u.Quotas.Of(w.claim.Tenant).Release(quota.Waiting, 1)
	}
}

// RunnerGone releases a removed runner. The loop of a pool calls it, so it must not block.
func (u *Tracker) RunnerGone(id runtime.RunnerID) {
	u.mu.Lock()
	of, held := u.runners[id]
	delete(u.runners, id)
	u.mu.Unlock()
	if held {
		u.Quotas.Of(of.tenant).Release(quota.Runners, 1)
		u.Quotas.Of(of.tenant).ReleaseAll(of.amounts)
	}
}

// Adopt counts a runner that an earlier server handed out.
func (u *Tracker) Adopt(r runtime.Runner) {
	if r.State != runtime.RunnerClaimed {
		return
	}
	of := reservation{r.Claim.Tenant, quota.ReservedBy(r.Environment.Resources, 1)}
	u.Quotas.Of(of.tenant).Adopt(quota.Runners, 1)
	u.Quotas.Of(of.tenant).AdoptAll(of.amounts)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runners[r.ID] = of
}

// Begin acquires an execution from a tenant's quota. A batch acquires one for all its executions until
// it ends, so that a batch that has begun isn't refused.
func (u *Tracker) Begin(tenant runtime.TenantID) error {
	if err := u.Quotas.Of(tenant).Start(); err != nil {
		return err
	}
	return u.Quotas.Of(tenant).Acquire(quota.Executions, 1)
}

// End releases what Begin acquired.
func (u *Tracker) End(tenant runtime.TenantID) { u.Quotas.Of(tenant).Release(quota.Executions, 1) }

// Room returns QUOTA_EXCEEDED if Begin would, so that no runner is claimed needlessly.
func (u *Tracker) Room(tenant runtime.TenantID) error {
	if err := u.Quotas.Of(tenant).Start(); err != nil {
		return err
	}
	return u.Quotas.Of(tenant).Room(quota.Executions)
}

// Ended releases an execution that isn't part of a batch, and counts what it used today.
func (u *Tracker) Ended(x runtime.Execution) {
	if x.Batch == nil {
		u.End(x.Tenant)
	}
	u.Quotas.Of(x.Tenant).Spend(x.Usage.User+x.Usage.System, x.Usage.OutputBytes)
}

// WaitingClaims returns at most first of the waiting claims after an id, oldest first, and the number of
// all that match.
func (u *Tracker) WaitingClaims(ctx context.Context, filter request.Waiting, first int, after string) (claims []WaitingClaim, total int) {
	u.mu.Lock()
	all := slices.Collect(maps.Keys(u.waiting))
	u.mu.Unlock()
	slices.SortFunc(all, func(a, b *waiter) int { return cmp.Compare(a.claim.ID, b.claim.ID) })
	for _, w := range all {
		if filter.Tenant != nil && w.claim.Tenant != *filter.Tenant || filter.EnvironmentID != "" && w.claim.EnvironmentID != filter.EnvironmentID {
			continue
		}
		total++
		if w.claim.ID <= after || len(claims) == first {
			continue
		}
		claim, position := w.claim, w.position(ctx)
		claim.Position, claim.EstimatedWait = position.Position, position.EstimatedWait
		claims = append(claims, claim)
	}
	return claims, total
}

// A reservation is what the pool of an environment reserves of its tenant's quotas.
type reservation struct {
	tenant  runtime.TenantID
	amounts quota.Amounts
}

func reservationOf(env runtime.Environment) reservation {
	amounts := quota.ReservedBy(env.Resources, env.PoolSize)
	amounts[quota.PoolRunners] = int64(env.PoolSize)
	return reservation{env.Tenant, amounts}
}

// beyond returns what r reserves in addition to another reservation.
func (r reservation) beyond(other reservation) quota.Amounts {
	if r.tenant != other.tenant {
		return r.amounts
	}
	return r.amounts.Minus(other.amounts)
}

// Reserve replaces what an environment's pool reserves, and returns a function that restores it. It
// returns QUOTA_EXCEEDED, and changes nothing, if that needs more than the tenant's quotas have. The
// turn to change environments must be held, as for the methods below.
func (u *Tracker) Reserve(env runtime.Environment) (undo func(), err error) {
	from, to := u.pools[env.ID], reservationOf(env)
	if err := u.Quotas.Of(to.tenant).AcquireAll(to.beyond(from)); err != nil {
		return nil, err
	}
	u.replace(env.ID, to)
	return func() { u.adopt(env.ID, from) }, nil
}

// AdoptReserved is like Reserve, and reserves even what exceeds the quotas.
func (u *Tracker) AdoptReserved(env runtime.Environment) { u.adopt(env.ID, reservationOf(env)) }

// ReleaseReserved releases what a deleted environment's pool reserved.
func (u *Tracker) ReleaseReserved(id runtime.EnvironmentID) { u.adopt(id, reservation{}) }

// adopt replaces a reservation, whatever the quotas.
func (u *Tracker) adopt(id runtime.EnvironmentID, to reservation) {
	u.Quotas.Of(to.tenant).AdoptAll(to.beyond(u.pools[id]))
	u.replace(id, to)
}

// replace replaces a reservation after what is new has been taken.
func (u *Tracker) replace(id runtime.EnvironmentID, to reservation) {
	from := u.pools[id]
	u.Quotas.Of(from.tenant).ReleaseAll(from.beyond(to))
	if u.pools[id] = to; to.amounts == (quota.Amounts{}) {
		delete(u.pools, id)
	}
}
