package engine

import (
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/request"
)

// stickyClaims has the claims for holders that are in progress, at most one for each holder.
type stickyClaims struct {
	mu    sync.Mutex // guards calls
	calls map[string]*pendingClaim
}

// A pendingClaim is a claim for a holder in progress. Later claims for that holder join it.
type pendingClaim struct {
	queued chan struct{} // closed when the claim begins to wait for a runner
	done   chan struct{} // closed when the fields below are set

	runner runtime.Runner
	made   bool // this call claimed it
	err    error
}

// join returns the claim in progress for a holder, or a new one with first set.
func (s *stickyClaims) join(key string) (call *pendingClaim, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call = s.calls[key]; call != nil {
		return call, false
	}
	call = &pendingClaim{queued: make(chan struct{}), done: make(chan struct{})}
	s.calls[key] = call
	return call, true
}

// end publishes a claim's result to all that joined it.
func (s *stickyClaims) end(key string, call *pendingClaim) {
	s.mu.Lock()
	delete(s.calls, key)
	s.mu.Unlock()
	close(call.done)
}

// claimHeld returns the holder's runner, or claims one. Concurrent claims for one holder share one
// claim. An error of another caller's claim is not returned here, because that caller may have
// waited for less time: the claim is tried again until its own deadline.
func (e *Engine) claimHeld(ctx context.Context, spawn func(func(context.Context)) error, id runtime.EnvironmentID, claim pool.Claim) (r runtime.Runner, first bool, err error) {
	key, deadline := request.HolderKey(id, claim.Claim), time.Now().Add(claim.WaitFor)
	for {
		call, first := e.sticky.join(key)
		if first {
			claim.WaitFor = max(time.Until(deadline), 0)
			claim.OnQueue = sync.OnceValue(func() error { close(call.queued); return nil })
			if err := spawn(func(ctx context.Context) { e.leadClaim(ctx, call, key, id, claim) }); err != nil {
				call.err = err
				e.sticky.end(key, call)
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

// leadClaim makes a claim that others may join, and publishes its result.
func (e *Engine) leadClaim(ctx context.Context, call *pendingClaim, key string, id runtime.EnvironmentID, claim pool.Claim) {
	defer e.sticky.end(key, call)
	if held, ok := e.runners.heldBy(key); ok {
		call.runner, call.err = e.touch(ctx, held.ID)
		if runtime.CodeOf(call.err) != runtime.CodeRunnerGone {
			return
		}
	}
	// The holder has no runner, or its runner has just ended.
	call.runner, call.err = e.claimNow(ctx, id, claim)
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
func (call *pendingClaim) await(ctx context.Context, first bool, deadline time.Time) error {
	var late <-chan time.Time
	if !first {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	var queued <-chan struct{}
	for {
		select {
		case <-call.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			queued = call.queued
		case <-queued:
			return runtime.Errorf(runtime.CodeNoRunnerAvailable, "another claim for this holder is still waiting for a runner: raise waitFor to wait longer")
		}
	}
}
