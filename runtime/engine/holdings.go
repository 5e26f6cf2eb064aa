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

// holdings are what tenants have of the engine: runners and executions. They are taken from
// the ledger where they are made, and given back when they go.
type holdings struct {
	ledger *quota.Ledger
	weight func(runtime.TenantID) int
	there  func(runtime.RunnerID) (runtime.Runner, bool)

	waiting waiting

	mu     sync.Mutex // guards what follows, and the state of waiters
	held   map[runtime.RunnerID]runtime.TenantID
	shares share.Bound // of claims that wait
}

// maxWaiting bounds the claims of all tenants that wait; one tenant alone gets half.
const maxWaiting = 20_000

func newHoldings(config Config, there func(runtime.RunnerID) (runtime.Runner, bool)) *holdings {
	h := &holdings{ledger: config.Quotas, weight: config.Weight, there: there, held: map[runtime.RunnerID]runtime.TenantID{},
		shares: share.Bound{Limit: maxWaiting, Quota: quota.Waiting.String(), Of: "claims that wait"}}
	if h.ledger == nil {
		h.ledger = quota.New()
	}
	if h.weight == nil {
		h.weight = func(runtime.TenantID) int { return runtime.DefaultWeight }
	}
	return h
}

// claim claims for the claim's tenant. Where that holds as many runners as it may, it waits for
// one to go, as it would for an idle one. The claims of a batch count as one: a batch that has
// begun isn't refused.
func (h *holdings) claim(ctx context.Context, p *pool.Pool, claim pool.Claim) (runtime.Runner, error) {
	tenant, began, later := claim.Claim.Tenant, time.Now(), laterCase(claim.Claim.Key)
	claim.Weight = h.weight(tenant)
	if claim.Waiting == nil {
		claim.Waiting = pool.NewWaiting()
	}
	w := &waiter{
		claim: WaitingClaim{Tenant: tenant, EnvironmentID: p.Environment().ID, Since: began, ExpiresAt: began.Add(claim.WaitFor)},
		place: func(ctx context.Context) pool.Place { return p.Place(ctx, claim.Waiting) },
		free:  later,
	}
	begins := claim.Waits
	claim.Waits = func() error {
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
	if err := h.reserve(ctx, claim, later); err != nil {
		return runtime.Runner{}, err
	}
	if !later {
		claim.WaitFor = max(claim.WaitFor-time.Since(began), 0)
	}
	h.ledger.Pend(tenant, 1)
	r, err := p.Claim(ctx, claim)
	h.ledger.Pend(tenant, -1)
	if err != nil {
		h.ledger.Release(tenant, quota.Runners)
		return r, err
	}
	h.mu.Lock()
	h.held[r.ID] = tenant
	h.mu.Unlock()
	if now, ok := h.there(r.ID); !ok || now.State != runtime.RunnerClaimed { // it went before left could know of it
		h.left(r.ID)
	}
	return r, nil
}

// reserve takes a runner of the tenant's quota, and waits for it as long as the claim may, for a
// later case of a batch until one goes.
func (h *holdings) reserve(ctx context.Context, claim pool.Claim, later bool) error {
	tenant, longest := claim.Claim.Tenant, claim.WaitFor
	err := h.ledger.Acquire(tenant, quota.Runners)
	if later {
		longest = math.MaxInt64
	}
	if err == nil || longest == 0 {
		return err
	}
	if err := claim.Waits(); err != nil {
		return err
	}
	return h.ledger.Wait(ctx, tenant, quota.Runners, longest)
}

// wait counts a claim that begins to wait, once, until it is answered.
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
		if err := h.ledger.Acquire(tenant, quota.Waiting); err != nil {
			h.shares.Release(tenant)
			return err
		}
	}
	w.waits = true
	h.waiting.add(w)
	return nil
}

// answered ends what wait began, if it did.
func (h *holdings) answered(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.answered = true
	if !w.waits {
		return
	}
	h.waiting.remove(w)
	if !w.free {
		h.shares.Release(w.claim.Tenant)
		h.ledger.Release(w.claim.Tenant, quota.Waiting)
	}
}

// left gives back a runner that goes. The owner of a pool calls it.
func (h *holdings) left(id runtime.RunnerID) {
	h.mu.Lock()
	tenant, held := h.held[id]
	delete(h.held, id)
	h.mu.Unlock()
	if held {
		h.ledger.Release(tenant, quota.Runners)
	}
}

// adopt counts a runner that an earlier server handed out.
func (h *holdings) adopt(r runtime.Runner) {
	if r.State != runtime.RunnerClaimed {
		return
	}
	h.ledger.Adopt(r.Claim.Tenant, quota.Runners, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[r.ID] = r.Claim.Tenant
}

// begin takes an execution of a tenant's quota. A batch takes one for all of its executions, until it
// ends: it isn't refused once it has begun.
func (h *holdings) begin(tenant runtime.TenantID) error {
	if err := h.ledger.Start(tenant); err != nil {
		return err
	}
	return h.ledger.Acquire(tenant, quota.Executions)
}

// end gives back what begin took.
func (h *holdings) end(tenant runtime.TenantID) { h.ledger.Release(tenant, quota.Executions) }

// room returns QUOTA_EXCEEDED if begin would, before a runner is claimed for nothing.
func (h *holdings) room(tenant runtime.TenantID) error {
	if err := h.ledger.Start(tenant); err != nil {
		return err
	}
	return h.ledger.Room(tenant, quota.Executions)
}

// ended gives back an execution that is of no batch, and counts what it used today.
func (h *holdings) ended(x runtime.Execution) {
	if x.Batch == nil {
		h.end(x.Tenant)
	}
	h.ledger.Spend(x)
}

// Usage returns what a tenant takes, and its limits.
func (e *Engine) Usage(id runtime.TenantID) quota.Usage { return e.holdings.ledger.Usage(id) }

// Subscribing takes a subscription of a tenant's quota until done is called.
func (e *Engine) Subscribing(id runtime.TenantID) (done func(), err error) {
	if err := e.holdings.ledger.Acquire(id, quota.Subscriptions); err != nil {
		return nil, err
	}
	return func() { e.holdings.ledger.Release(id, quota.Subscriptions) }, nil
}
