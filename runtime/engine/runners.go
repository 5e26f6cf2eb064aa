package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// Bounds of claims.
const (
	defaultInactivity = 10 * time.Minute
	maxInactivity     = 30 * 24 * time.Hour
	maxWait           = time.Hour // WaitFor
	maxKeyBytes       = 255
)

// runners are the runners that aren't gone, as last reported by the pools.
type runners struct {
	byID     sync.Map // runtime.RunnerID → runtime.Runner
	byHolder sync.Map // holderKey → runtime.RunnerID, of those that are CLAIMED
	feed     *events.RunnerFeed
}

// change applies a runner's new state.
func (all *runners) change(r runtime.Runner) {
	old, known := all.get(r.ID)
	if r.State == runtime.RunnerGone {
		all.byID.Delete(r.ID)
	} else {
		all.byID.Store(r.ID, r)
	}
	all.recordHolder(r)
	if old.State != r.State || old.Message != r.Message {
		all.feed.Report(r, !known)
	}
}

// get returns a runner that isn't gone, and whether there is one.
func (all *runners) get(id runtime.RunnerID) (runtime.Runner, bool) {
	value, ok := all.byID.Load(id)
	if !ok {
		return runtime.Runner{}, false
	}
	return value.(runtime.Runner), true
}

// Runner returns a runner, and whether it exists.
func (e *Engine) Runner(id runtime.RunnerID) (runtime.Runner, bool) { return e.runners.get(id) }

// Runners returns the runners that aren't gone, ordered by id, which is by age: oldest first, unless
// the filter reverses it.
func (e *Engine) Runners(filter RunnerFilter) []runtime.Runner {
	var all []runtime.Runner
	for _, value := range e.runners.byID.Range {
		if r := value.(runtime.Runner); filter.matches(r) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b runtime.Runner) int {
		if filter.NewestFirst {
			a, b = b, a
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return all
}

// Claim is like ClaimOrResume, but doesn't report whether a claim was resumed.
func (e *Engine) Claim(ctx context.Context, in ClaimInput) (runtime.Runner, error) {
	r, _, err := e.ClaimOrResume(ctx, in)
	return r, err
}

// ClaimOrResume claims a runner. It is idempotent by key: the same key returns the same runner while
// it exists, and RUNNER_GONE for a day after that; with another input CONFLICT.
// The same holder gets the same runner while that exists, and a new one afterwards. Its claim is
// renewed but otherwise unchanged. resumed reports that an earlier claim of the holder made it.
func (e *Engine) ClaimOrResume(ctx context.Context, in ClaimInput) (r runtime.Runner, resumed bool, err error) {
	claim, err := in.alone()
	if err != nil {
		return runtime.Runner{}, false, err
	}
	r, first, err := e.claimBy(ctx, e.jobs.add, in.EnvironmentID, claim)
	return r, in.Holder != nil && !first, err
}

// alone checks the input of a claim that isn't part of a run.
func (in ClaimInput) alone() (pool.Claim, error) {
	claim, err := in.claim()
	if in.Key != "" {
		claim.Claim.Key = keyOf(in.Keys, "claim/"+in.Key) // separate from the keys of run
	}
	if err == nil && in.Holder != nil {
		claim.Claim.Holder, claim.Claim.HolderScope, claim.Claim.Input = *in.Holder, in.Keys, ""
		err = in.validateHolder()
	}
	return claim, err
}

// validateHolder checks the holder, which isn't nil.
func (in ClaimInput) validateHolder() error {
	if in.Key != "" {
		return runtime.Invalid("holder", "can't be combined with idempotencyKey: a claim with a holder is safe to repeat without one")
	}
	return runtime.ValidateHolder(*in.Holder)
}

// claimIn claims a runner, once for each key, even if the environment is deleted afterwards. A claim
// with a key continues when its caller disconnects, so that a retry finds its runner.
func (e *Engine) claimIn(ctx context.Context, id runtime.EnvironmentID, claim pool.Claim) (runtime.Runner, error) {
	r, _, err := e.claimBy(ctx, e.jobs.add, id, claim)
	return r, err
}

// claimBy is like claimIn; spawn starts the goroutine in which a claim with a key or a holder runs.
// The result first reports that this call claimed the runner, not another one with the same key or
// holder.
func (e *Engine) claimBy(ctx context.Context, spawn func(func(context.Context)) error, id runtime.EnvironmentID, claim pool.Claim) (r runtime.Runner, first bool, err error) {
	began, held := time.Now(), claim.Claim.Holder != ""
	defer func() {
		if !held || first || err != nil { // otherwise this call made no claim
			e.counts.claimed(id, began, err)
		}
	}()
	if held {
		return e.claimHeld(ctx, spawn, id, claim)
	}
	if claim.Claim.Key != "" {
		return e.claimOnce(ctx, spawn, id, claim)
	}
	p, err := e.pool(id)
	if err != nil {
		return runtime.Runner{}, false, err
	}
	r, err = e.holdings.claim(ctx, p, claim)
	return r, true, err
}

// claimOnce makes a claim with a key.
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
	if r, ok := e.Runner(runner); ok && r.State == runtime.RunnerClaimed {
		return r, false, nil
	}
	return runtime.Runner{}, false, runtime.Gone(runner)
}

// keyOf returns an idempotency key of a scope as it is stored. Keys of callers for all tenants have
// no prefix, because servers stored them so before there were tenants.
func keyOf(scope, key string) string {
	if scope == "" {
		return key
	}
	return keysOf(scope) + key
}

// keysOf returns the prefix of all stored keys of a scope.
func keysOf(scope string) string { return "tenant/" + scope + "/" }

// keyConflict returns CONFLICT for an idempotency key that was used with another input.
func keyConflict() error {
	return runtime.Errorf(runtime.CodeConflict, "this idempotencyKey was used before with a different input: use a new key")
}

// keyError translates errors of [syncs.Group].
func keyError(err error) error {
	if errors.Is(err, syncs.ErrInput) {
		return keyConflict()
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
		p, err := e.pool(id)
		if err != nil {
			return runtime.Runner{}, err
		}
		return e.holdings.claim(ctx, p, claim)
	case spent.Input != claim.Claim.Input:
		return runtime.Runner{}, keyConflict()
	default:
		return runtime.Runner{}, runtime.Gone(spent.Runner)
	}
}

// ending stores the key of a runner's claim, and why the runner is about to be removed if something
// runs in it. It implements pool.Options.Ending.
func (e *Engine) ending(ctx context.Context, r runtime.Runner) error {
	if len(e.sessions.in(r.ID)) > 0 {
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

// Renew renews a claim. It returns RUNNER_GONE if the runner is gone or being removed, and CONFLICT
// if it isn't claimed.
func (e *Engine) Renew(ctx context.Context, id runtime.RunnerID) (runtime.Runner, error) {
	p, err := e.poolOf(id)
	if err != nil {
		return runtime.Runner{}, err
	}
	return p.Renew(ctx, id)
}

// Release ends a claim and removes its runner. It returns false if the runner was gone already.
func (e *Engine) Release(ctx context.Context, id runtime.RunnerID) (bool, error) {
	p, err := e.poolOf(id)
	if err != nil {
		return false, nil
	}
	return p.Release(ctx, id)
}

// pool returns the pool of a served environment, or ENVIRONMENT_NOT_FOUND.
func (e *Engine) pool(id runtime.EnvironmentID) (*pool.Pool, error) {
	p := e.catalog.poolOfServed(id)
	if p == nil {
		return nil, NoEnvironment(id)
	}
	return p, nil
}

// poolOf returns the pool of a runner, or RUNNER_GONE.
func (e *Engine) poolOf(id runtime.RunnerID) (*pool.Pool, error) {
	if r, ok := e.Runner(id); ok {
		if p := e.catalog.pool(r.Environment.ID); p != nil {
			return p, nil
		}
	}
	return nil, runtime.Gone(id)
}

// reach gives [files.Access] its way to runners.
type reach struct{ *Engine }

// Use marks a runner's claim as used until done is called.
func (r reach) Use(ctx context.Context, id runtime.RunnerID) (done func(), err error) {
	p, err := r.poolOf(id)
	if err != nil {
		return nil, err
	}
	if _, err := p.Use(ctx, id); err != nil {
		return nil, err
	}
	return func() { p.Done(ctx, id) }, nil
}

// Dial opens a stream to a runner's agent.
func (r reach) Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	return r.cluster.Dial(ctx, id)
}

// claim checks the input and returns the claim that it describes.
func (in ClaimInput) claim() (pool.Claim, error) {
	claim := pool.Claim{Claim: runtime.Claim{Tenant: in.Tenant, InactivityTimeout: defaultInactivity, Labels: in.Labels}, Caller: in.Caller}
	var err error
	if in.InactivityTimeout != nil {
		if claim.Claim.InactivityTimeout, err = seconds("inactivityTimeout", *in.InactivityTimeout, maxInactivity); err != nil {
			return claim, err
		}
	}
	if in.WaitFor != nil {
		if claim.WaitFor, err = seconds("waitFor", *in.WaitFor, maxWait); err != nil {
			return claim, err
		}
	}
	if err := runtime.ValidateLabels(in.Labels); err != nil {
		return claim, err
	}
	if err := validateKey(in.Key); err != nil {
		return claim, err
	}
	// A retry may wait longer or shorter, so WaitFor isn't part of the input.
	claim.Claim.Input = digest(struct {
		Environment runtime.EnvironmentID
		Inactivity  time.Duration
		Labels      []runtime.Label
	}{in.EnvironmentID, claim.Claim.InactivityTimeout, in.Labels})
	return claim, nil
}

// validateKey checks an idempotency key; "" means none.
func validateKey(key string) error {
	if len(key) > maxKeyBytes || strings.ContainsRune(key, 0) {
		return runtime.Invalid("idempotencyKey", "must be at most %d bytes without NUL", maxKeyBytes)
	}
	return nil
}

// digest returns a fingerprint of the request made with an idempotency key.
func digest(request any) string {
	text, err := json.Marshal(request)
	if err != nil {
		panic(err) // impossible: these are plain structs
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
