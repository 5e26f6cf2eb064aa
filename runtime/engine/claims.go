package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/environments"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/syncs"
	"github.com/rockpool/rockpool/runtime/usage"
)

// Claim is like ClaimOrResume, but doesn't report whether a claim was resumed.
func (s *Runners) Claim(ctx context.Context, in request.Claim) (runtime.Runner, error) {
	r, _, err := s.ClaimOrResume(ctx, in)
	return r, err
}

// ClaimOrResume claims a runner for the caller's tenant. It is idempotent by key: the same key returns
// the same runner while it exists, and RUNNER_GONE for a day after that; with another input CONFLICT.
// The same holder gets the same runner while that exists, and a new one afterwards. Its claim is
// renewed but otherwise unchanged. resumed reports that an earlier claim of the holder made it.
func (s *Runners) ClaimOrResume(ctx context.Context, in request.Claim) (r runtime.Runner, resumed bool, err error) {
	err = s.e.claiming(ctx, in, audit.OfRunner, func(id runtime.EnvironmentID, claim pool.Claim) (string, bool, error) {
		var first bool
		r, first, err = s.e.claimBy(ctx, s.e.jobs.Add, id, claim)
		resumed = in.Holder != nil && !first
		return string(r.ID), resumed, err
	})
	return r, resumed, err
}

// claiming authorises, acts and records for a caller that claims a runner: it calls claim with the
// caller's environment, tenant and scope of keys.
func (e *Engine) claiming(ctx context.Context, in request.Claim, kind string, claim func(id runtime.EnvironmentID, claim pool.Claim) (made string, resumed bool, err error)) error {
	made := audit.NewMade(kind, "")
	return e.auth.Make(ctx, "claimRunner", made, func(p access.Principal) error {
		asked := in.EnvironmentID
		in.Tenant, in.EnvironmentID = e.claimant(p, asked)
		in.Keys = p.Keys()
		checked, err := in.Parse()
		if err != nil {
			return err
		}
		var resumed bool
		if made.ID, resumed, err = claim(in.EnvironmentID, checked); err == nil {
			made.Tenant = in.Tenant
		}
		made.Details = resumption(resumed)
		return noEnvironment(err, asked, in.EnvironmentID)
	})
}

// resumption returns the detail of a claim that resumed an earlier one of the same holder.
func resumption(resumed bool) []audit.Detail {
	if !resumed {
		return nil
	}
	return []audit.Detail{audit.Words("resumed", []string{"true"})}
}

// claimant returns the tenant for which a caller claims in an environment, and the id of the environment
// to claim in. It replaces an environment that the caller doesn't see by "", which is refused like an
// unknown id, after the other checks.
func (e *Engine) claimant(p access.Principal, id runtime.EnvironmentID) (runtime.TenantID, runtime.EnvironmentID) {
	env, ok := e.environmentRegistry.Get(id)
	switch {
	case !ok:
		return p.Tenant, id
	case !p.SeesEnvironment(env):
		return p.Tenant, ""
	}
	return p.ActsFor(env.Tenant), id
}

// noEnvironment names the caller's environment in err, if claimant had replaced it.
func noEnvironment(err error, asked, used runtime.EnvironmentID) error {
	if used != asked && runtime.CodeOf(err) == runtime.CodeEnvironmentNotFound {
		return environments.NotFound(asked)
	}
	return err
}

// Waiting returns at most first of the waiting claims after an id, of the caller's tenant or of all,
// oldest first, and the number of all that match.
func (s *Runners) Waiting(ctx context.Context, filter request.Waiting, first int, after string) (claims []usage.WaitingClaim, total int, err error) {
	p, err := s.e.auth.Allow(ctx, "waitingClaims")
	if err != nil {
		return nil, 0, err
	}
	var sees bool
	if filter.Tenant, sees = p.Narrowed(filter.Tenant); !sees {
		return nil, 0, nil
	}
	claims, total = s.e.usage.WaitingClaims(ctx, filter, first, after)
	return claims, total, nil
}

// claimBy claims a runner, once for each key or holder, even if the environment is deleted afterwards.
// A claim with a key or a holder runs in a goroutine of spawn. With jobs.Add it continues when its caller
// disconnects; a ticket's claim ends with its ticket. The result first reports that this call claimed the runner,
// not another one with the same key or holder.
func (e *Engine) claimBy(ctx context.Context, spawn func(func(context.Context)) error, id runtime.EnvironmentID, claim pool.Claim) (r runtime.Runner, first bool, err error) {
	began, held := time.Now(), claim.Claim.Holder != ""
	defer func() {
		if !held || first || err != nil { // otherwise this call made no claim
			e.counts.Claimed(id, began, err)
		}
	}()
	switch {
	case held:
		return e.claimHeld(ctx, spawn, id, claim)
	case claim.Claim.Key != "":
		return e.claimOnce(ctx, spawn, id, claim)
	}
	r, err = e.claimNow(ctx, id, claim)
	return r, true, err
}

// claimNow makes a claim, without regard to its key and its holder.
func (e *Engine) claimNow(ctx context.Context, id runtime.EnvironmentID, claim pool.Claim) (runtime.Runner, error) {
	p, err := e.environmentRegistry.Served(id)
	if err != nil {
		return runtime.Runner{}, err
	}
	return e.usage.Claim(ctx, p, claim)
}

func (e *Engine) claimOnce(ctx context.Context, spawn func(func(context.Context)) error, id runtime.EnvironmentID, claim pool.Claim) (runtime.Runner, bool, error) {
	var claimed runtime.Runner
	var got atomic.Pointer[runtime.RunnerID]
	unwanted := func(ctx context.Context) bool { return errors.Is(context.Cause(ctx), pool.ErrUnwanted) }
	runner, first, err := e.claims.Do(ctx, claim.Claim.Key, claim.Claim.Input, spawn, func(ctx context.Context) (_ runtime.RunnerID, err error) {
		claimed, err = e.claimUnlessSpent(ctx, id, claim)
		if err != nil {
			return "", err
		}
		// The caller has given up, and no retry will want the runner.
		if got.Store(&claimed.ID); unwanted(ctx) {
			e.releaseLater(claimed.ID)
			return "", pool.ErrUnwanted
		}
		return claimed.ID, nil
	})
	if id := got.Load(); err != nil && id != nil && unwanted(ctx) { // it got its runner after the caller had given up
		e.releaseLater(*id)
	}
	switch {
	case err != nil:
		return runtime.Runner{}, first, keyError(err)
	case first:
		return claimed, true, nil
	}
	if r, ok := e.runnerIndex.get(runner); ok && r.State == runtime.RunnerClaimed {
		return r, false, nil
	}
	return runtime.Runner{}, false, runtime.Gone(runner)
}

// keyError translates errors of [syncs.Group].
func keyError(err error) error {
	if errors.Is(err, syncs.ErrInput) {
		return request.KeyConflict()
	}
	return err
}

// claimUnlessSpent claims a runner unless the key's runner is gone already. It can't miss a spent key,
// because a key is stored as spent before it is forgotten (see ending).
func (e *Engine) claimUnlessSpent(ctx context.Context, id runtime.EnvironmentID, claim pool.Claim) (runtime.Runner, error) {
	spent, found, err := e.store.SpentKey(ctx, claim.Claim.Key, e.clock.Now())
	switch {
	case err != nil:
		return runtime.Runner{}, err
	case !found:
		return e.claimNow(ctx, id, claim)
	case spent.Input != claim.Claim.Input:
		return runtime.Runner{}, request.KeyConflict()
	default:
		return runtime.Runner{}, runtime.Gone(spent.Runner)
	}
}

// ending stores the key of a runner's claim, and why the runner is about to be removed if something
// runs in it. It implements pool.Options.Ending.
func (e *Engine) ending(ctx context.Context, r runtime.Runner) error {
	if len(e.sessions.In(r.ID)) > 0 {
		if err := e.store.NoteGone(ctx, r.ID, r.GoneReason); err != nil {
			return err
		}
	}
	if r.Claim.Key == "" {
		return nil
	}
	// The caller of the claim that got r had given up, and a later claim has another runner.
	if id, ok := e.claims.Kept(r.Claim.Key); ok && id != r.ID {
		return nil
	}
	now := e.clock.Now()
	err := e.store.PutSpentKey(ctx, store.SpentKey{
		Key: r.Claim.Key, Input: r.Claim.Input, Runner: r.ID, Expires: now.Add(store.SpentKeyLife),
	}, now)
	if err != nil {
		return err
	}
	e.claims.Forget(r.Claim.Key)
	return nil
}

// stickyClaims has the claims in progress that name a holder, at most one for each.
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
	if held, ok := e.runnerIndex.heldBy(key); ok {
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
		late = time.After(time.Until(deadline))
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
