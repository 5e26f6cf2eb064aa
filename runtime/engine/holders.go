package engine

import (
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
)

// holderKey returns what a claim for a holder is found by.
func holderKey(id runtime.EnvironmentID, claim runtime.Claim) string {
	return keyOf(claim.HolderScope, "holder/"+string(id)+"/"+claim.Holder)
}

// hold notes which runner a holder has. If a killed server left two, the one claimed last
// counts.
func (all *runners) hold(r runtime.Runner) {
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

// heldBy returns the runner that a holder has, and whether it has one.
func (all *runners) heldBy(key string) (runtime.Runner, bool) {
	id, ok := all.byHolder.Load(key)
	if !ok {
		return runtime.Runner{}, false
	}
	return all.get(id.(runtime.RunnerID))
}

// holders are the claims for holders that are under way, at most one of each holder.
type holders struct {
	mu    sync.Mutex // guards calls
	calls map[string]*holding
}

// A holding is a claim for a holder, which all claims for it that come meanwhile join.
type holding struct {
	waits chan struct{} // closed when it begins to wait
	done  chan struct{} // closed when what follows is set

	runner runtime.Runner
	made   bool // it was claimed now
	err    error
}

// join returns the claim for a holder that is under way, or a new one.
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

// end answers all claims that joined one.
func (h *holders) end(key string, call *holding) {
	h.mu.Lock()
	delete(h.calls, key)
	h.mu.Unlock()
	close(call.done)
}

// claimHeld claims for a holder, unless it has a runner, or another claim gets it one. The error of another
// claim isn't ours: it may have waited for less time.
func (e *Engine) claimHeld(ctx context.Context, spawn func(func(context.Context)) error, id runtime.EnvironmentID, claim pool.Claim) (r runtime.Runner, first bool, err error) {
	key, deadline := holderKey(id, claim.Claim), time.Now().Add(claim.WaitFor)
	for {
		call, first := e.holders.join(key)
		if first {
			claim.WaitFor = max(time.Until(deadline), 0)
			claim.Waits = sync.OnceValue(func() error { close(call.waits); return nil })
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

// leadHolding makes a claim that others may have joined.
func (e *Engine) leadHolding(ctx context.Context, call *holding, key string, id runtime.EnvironmentID, claim pool.Claim) {
	defer e.holders.end(key, call)
	if held, ok := e.runners.heldBy(key); ok {
		call.runner, call.err = e.touch(ctx, held.ID)
		if runtime.CodeOf(call.err) != runtime.CodeRunnerGone {
			return
		}
	}
	p, err := e.pool(id)
	if err != nil {
		call.err = err
		return
	}
	call.runner, call.err = e.holdings.claim(ctx, p, claim)
	call.made = call.err == nil
}

// touch renews a claim as a use does.
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

// await returns once a claim is answered. A claim that joined it gives up at its own deadline, but
// only if the joined claim is waiting by then.
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
			return runtime.Errorf(runtime.CodeNoRunnerAvailable, "another claim for this holder waits for a runner: wait longer with waitFor")
		}
	}
}
