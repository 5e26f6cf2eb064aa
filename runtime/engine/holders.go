package engine

import (
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
)

// holderKey returns the key under which a holder's claim is stored.
func holderKey(id runtime.EnvironmentID, claim runtime.Claim) string {
	return keyOf(claim.HolderScope, "holder/"+string(id)+"/"+claim.Holder)
}

// recordHolder records which runner a holder has. If a killed server left two, the later claim counts.
func (all *runners) recordHolder(r runtime.Runner) {
	if r.Claim.Holder == "" {
		return
	}
	key := holderKey(r.Environment.ID, r.Claim)
	if r.State != runtime.RunnerClaimed {
		all.byHolder.CompareAndDelete(key, r.ID)
		return
	}
	if other, ok := all.heldBy(key); !ok || !other.Claim.ClaimedAt.After(r.Claim.ClaimedAt) {
		all.byHolder.Store(key, r.ID)
	}
}

// heldBy returns a holder's runner, and whether it has one.
func (all *runners) heldBy(key string) (runtime.Runner, bool) {
	id, ok := all.byHolder.Load(key)
	if !ok {
		return runtime.Runner{}, false
	}
	return all.get(id.(runtime.RunnerID))
}

// holders holds the claims for holders that are in progress, at most one for each holder.
type holders struct {
	mu    sync.Mutex // guards calls
	calls map[string]*holding
}

// A holding is a claim for a holder in progress. Later claims for that holder join it.
type holding struct {
	waits chan struct{} // closed when the claim begins to wait for a runner
	done  chan struct{} // closed when the fields below are set

	runner runtime.Runner
	made   bool // this call claimed it
	err    error
}

// join returns the claim in progress for a holder, or a new one with first set.
func (h *holders) join(key string) (call *holding, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if call = h.calls[key]; call != nil {
		return call, false
	}
	call = &holding{waits: make(chan struct{}), done: make(chan struct{})}
	h.calls[key] = call
	return call, true
}

// end publishes a claim's result to all that joined it.
func (h *holders) end(key string, call *holding) {
	h.mu.Lock()
	delete(h.calls, key)
	h.mu.Unlock()
	close(call.done)
}

// claimHeld returns the holder's runner, or claims one. Concurrent claims for one holder share one
// claim. An error of another caller's claim is not returned here, because that caller may have
// queued for less time: the claim is tried again until its own deadline.
func (e *Engine) claimHeld(ctx context.Context, spawn func(func(context.Context)) error, id runtime.EnvironmentID, claim pool.Claim) (r runtime.Runner, first bool, err error) {
	key, deadline := holderKey(id, claim.Claim), time.Now().Add(claim.WaitFor)
	for {
		call, first := e.holders.join(key)
		if first {
			claim.WaitFor = max(time.Until(deadline), 0)
			claim.OnQueue = sync.OnceValue(func() error { close(call.waits); return nil })
			if err := spawn(func(ctx context.Context) { e.leadHolding(ctx, call, key, id, claim) }); err != nil {
				call.err = err
				e.holders.end(key, call)
			}
		}
		if err := call.await(ctx, first, deadline); err != nil {
			return runtime.Runner{}, first, err
		}
		if first || call.err == nil {
			return call.runner, first && call.made, call.err
		}
	}
}

// leadHolding makes a claim that others may join, and publishes its result.
func (e *Engine) leadHolding(ctx context.Context, call *holding, key string, id runtime.EnvironmentID, claim pool.Claim) {
	defer e.holders.end(key, call)
	if held, ok := e.runners.heldBy(key); ok {
		call.runner, call.err = e.touch(ctx, held.ID)
		if runtime.CodeOf(call.err) != runtime.CodeRunnerGone {
			return
		}
	}
	// The holder has no runner, or its runner has just ended.
	p, err := e.pool(id)
	if err != nil {
		call.err = err
		return
	}
	call.runner, call.err = e.holdings.claim(ctx, p, claim)
	call.made = call.err == nil
}

// touch renews a claim in the way that a use of its runner does.
func (e *Engine) touch(ctx context.Context, id runtime.RunnerID) (runtime.Runner, error) {
	p, err := e.poolOf(id)
	if err != nil {
		return runtime.Runner{}, err
	}
	r, err := p.Use(ctx, id)
	if err == nil {
		p.Done(ctx, id)
	}
	return r, err
}

// await returns once a claim has its result. A caller that joined gives up at its own deadline, but
// only if the joined claim is waiting for a runner then.
func (call *holding) await(ctx context.Context, first bool, deadline time.Time) error {
	var late <-chan time.Time
	if !first {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	var waits <-chan struct{}
	for {
		select {
		case <-call.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			waits = call.waits
		case <-waits:
			return runtime.Errorf(runtime.CodeNoRunnerAvailable, "another claim for this holder is still waiting for a runner: raise waitFor to wait longer")
		}
	}
}
