package engine

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/share"
)

// holdings count what tenants use of the engine: runners and executions. Each is acquired from the
// ledger before it is made, and released when it ends.
type holdings struct {
	ledger *quota.Ledger
	weight func(runtime.TenantID) int // the share of a tenant among those that wait
	runner func(runtime.RunnerID) (runtime.Runner, bool)

	memory  *share.Memory
	pools   map[runtime.EnvironmentID]reservation // see reserve
	waiting waiting

	mu     sync.Mutex                       // guards the fields below, and the state of waiters
	held   map[runtime.RunnerID]reservation // runners that are counted
	shares share.Bound                      // of waiting claims
}

// maxWaiting bounds the waiting claims of all tenants together. One tenant gets at most half.
const maxWaiting = 20_000

func newHoldings(config Config, runner func(runtime.RunnerID) (runtime.Runner, bool)) *holdings {
	h := &holdings{ledger: config.Quotas, weight: config.Weight, memory: config.Memory, runner: runner, held: map[runtime.RunnerID]reservation{}, pools: map[runtime.EnvironmentID]reservation{},
		shares: share.Bound{Limit: maxWaiting, Quota: quota.Waiting.String(), Of: "waiting claims"}}
	if h.ledger == nil {
		h.ledger = quota.New()
	}
	if h.weight == nil {
		h.weight = func(runtime.TenantID) int { return runtime.DefaultWeight }
	}
	return h
}

// claim claims a runner for the claim's tenant. If the tenant has reached its quota of runners, the
// claim waits until one is released, as it would wait for an idle runner. All claims of a batch
// count as one, so that a batch that has begun isn't refused.
func (h *holdings) claim(ctx context.Context, p *pool.Pool, claim pool.Claim) (runtime.Runner, error) {
	tenant, began, later := claim.Claim.Tenant, time.Now(), laterCase(claim.Claim.Key)
	claim.Weight = h.weight(tenant)
	bytes := int64(0) // a ticket, which tracks the claim, keeps the memory
	if claim.Queued == nil {
		claim.Queued, bytes = pool.NewQueued(), waitingBytes+bytesOfLabels(claim.Claim.Labels)
	}
	w := &waiter{
		claim: WaitingClaim{Tenant: tenant, EnvironmentID: p.Environment().ID, Since: began, ExpiresAt: began.Add(claim.WaitFor)},
		place: func(ctx context.Context) pool.QueuePosition { return p.QueuePosition(ctx, claim.Queued) },
		free:  later,
		bytes: bytes,
	}
	// The claim is counted as waiting only once it really waits: for the quota, or in the pool.
	begins := claim.OnQueue
	claim.OnQueue = func() error {
		if err := h.wait(w); err != nil || begins == nil {
			return err
		}
		return begins()
	}
	defer h.answered(w)
	if !later {
		if err := h.ledger.Claim(tenant); err != nil {
			return runtime.Runner{}, err
		}
	}
	if err := h.acquire(ctx, claim, later); err != nil {
		return runtime.Runner{}, err
	}
	needs := quota.ReservedBy(p.Environment().Resources, 1)
	if later {
		h.ledger.AdoptAll(tenant, needs)
	} else if err := h.ledger.AcquireAll(tenant, needs); err != nil {
		h.ledger.Release(tenant, quota.Runners)
		return runtime.Runner{}, err
	}
	if !later {
		// The wait for the quota is part of WaitFor.
		claim.WaitFor = max(claim.WaitFor-time.Since(began), 0)
	}
	h.ledger.Pend(tenant, 1)
	r, err := p.Claim(ctx, claim)
	h.ledger.Pend(tenant, -1)
	if err != nil {
		h.ledger.Release(tenant, quota.Runners)
		h.ledger.ReleaseAll(tenant, needs)
		return r, err
	}
	h.mu.Lock()
	h.held[r.ID] = reservation{tenant, needs}
	h.mu.Unlock()
	// The runner may have ended before runnerGone could find it.
	if now, ok := h.runner(r.ID); !ok || now.State != runtime.RunnerClaimed {
		h.runnerGone(r.ID)
	}
	return r, nil
}

// acquire takes a runner from the tenant's quota, and waits for it if the claim may wait. A later case of a
// batch waits without a limit.
func (h *holdings) acquire(ctx context.Context, claim pool.Claim, later bool) error {
	tenant, longest := claim.Claim.Tenant, claim.WaitFor
	err := h.ledger.Acquire(tenant, quota.Runners)
	if later {
		longest = math.MaxInt64
	}
	if err == nil || longest == 0 {
		return err
	}
	if err := claim.OnQueue(); err != nil {
		return err
	}
	return h.ledger.Wait(ctx, tenant, quota.Runners, longest)
}

// wait counts a claim that begins to wait, once, until answered is called.
func (h *holdings) wait(w *waiter) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.waits || w.answered {
		return nil
	}
	if tenant := w.claim.Tenant; !w.free {
		if err := h.shares.Acquire(tenant); err != nil {
			return err
		}
		kept, err := h.memory.Keep(tenant, w.bytes, "a waiting claim")
		if err == nil {
			err = h.ledger.Acquire(tenant, quota.Waiting)
		}
		if err != nil {
			kept.Free()
			h.shares.Release(tenant)
			return err
		}
		w.kept = kept
	}
	w.waits = true
	h.waiting.add(w)
	return nil
}

// answered ends what wait began, if anything.
func (h *holdings) answered(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.answered = true
	if !w.waits {
		return
	}
	h.waiting.remove(w)
	w.kept.Free()
	if !w.free {
		h.shares.Release(w.claim.Tenant)
		h.ledger.Release(w.claim.Tenant, quota.Waiting)
	}
}

// runnerGone releases a removed runner. The owner goroutine of a pool calls it, so it must not block.
func (h *holdings) runnerGone(id runtime.RunnerID) {
	h.mu.Lock()
	of, held := h.held[id]
	delete(h.held, id)
	h.mu.Unlock()
	if held {
		h.ledger.Release(of.tenant, quota.Runners)
		h.ledger.ReleaseAll(of.tenant, of.amounts)
	}
}

// adopt counts a runner that an earlier server handed out.
func (h *holdings) adopt(r runtime.Runner) {
	if r.State != runtime.RunnerClaimed {
		return
	}
	of := reservation{r.Claim.Tenant, quota.ReservedBy(r.Environment.Resources, 1)}
	h.ledger.Adopt(of.tenant, quota.Runners, 1)
	h.ledger.AdoptAll(of.tenant, of.amounts)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[r.ID] = of
}

// begin acquires an execution from a tenant's quota. A batch acquires one for all its executions until
// it ends, so that a batch that has begun isn't refused.
func (h *holdings) begin(tenant runtime.TenantID) error {
	if err := h.ledger.Start(tenant); err != nil {
		return err
	}
	return h.ledger.Acquire(tenant, quota.Executions)
}

// end releases what begin acquired.
func (h *holdings) end(tenant runtime.TenantID) { h.ledger.Release(tenant, quota.Executions) }

// room returns QUOTA_EXCEEDED if begin would, so that no runner is claimed needlessly.
func (h *holdings) room(tenant runtime.TenantID) error {
	if err := h.ledger.Start(tenant); err != nil {
		return err
	}
	return h.ledger.Room(tenant, quota.Executions)
}

// ended releases an execution that isn't part of a batch, and counts what it used today.
func (h *holdings) ended(x runtime.Execution) {
	if x.Batch == nil {
		h.end(x.Tenant)
	}
	h.ledger.Spend(x)
}

// Usage returns what a tenant uses, and its limits.
func (e *Engine) Usage(id runtime.TenantID) quota.Usage { return e.holdings.ledger.Usage(id) }

// AcquireSubscription acquires a subscription from a tenant's quota, or returns QUOTA_EXCEEDED.
// Call done once when the subscription ends.
func (e *Engine) AcquireSubscription(id runtime.TenantID) (done func(), err error) {
	if err := e.holdings.ledger.Acquire(id, quota.Subscriptions); err != nil {
		return nil, err
	}
	return func() { e.holdings.ledger.Release(id, quota.Subscriptions) }, nil
}
