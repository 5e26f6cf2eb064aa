// Package pool keeps one environment's runners: enough of them warm, each claimed at most once, none
// held longer than its claim.
//
// One goroutine, Pool.Run, owns all state in plain variables. All other goroutines send it messages.
// Slow work runs in workers that Run waits for and that report back by messages. A pure function, Plan,
// decides after every change what to start and to stop; a use of a claimed runner is no such change. A
// hint from the cluster only causes another list of its runners.
//
// A runner's state only moves forward, in loop.advance:
//
//	STARTING ─ its agent answered ─▶ IDLE ─ a claim gets it ─▶ CLAIMING ─ stored ─▶ CLAIMED
//	    │                             │                           │                    │
//	    ├──────────── Plan, Release, or a failed start or mark ───┴────────────────────┤
//	    │                                                                              ▼
//	    └── it ended unasked ─▶ GONE ◀─────────────────── removed ───────────────── STOPPING
package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/syncs"
	"github.com/rockpool/rockpool/runtime/timing"
)

// A Cluster is the part of runtime.Cluster that a pool needs.
type Cluster interface {
	Start(ctx context.Context, id runtime.RunnerID, env runtime.Environment, priority runtime.Priority) error
	Mark(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error
	Remove(ctx context.Context, id runtime.RunnerID) error
	Runners(ctx context.Context, env runtime.EnvironmentID) ([]runtime.Runner, error)
}

// Options are a pool's dependencies and settings.
type Options struct {
	Cluster Cluster
	Logger  *zap.Logger
	Alert   AlertRule
	Boot    timing.Boot // the zero value means stored expiries follow the wall clock

	// Busy counts the uses that an earlier server began, by known runner. Each ends with a Done.
	Busy map[runtime.RunnerID]int

	// Observe is called by the loop with a runner's new state after every change. It must not
	// block or call the pool.
	Observe func(runtime.Runner)

	// Alerted is called by the loop with each raised or resolved alert. It must not block or call
	// the pool. nil means not called.
	Alerted func(runtime.Environment, runtime.PoolAlert)

	// Ending is called before a claimed runner is removed, and again before each retry of the
	// removal. An error delays the removal.
	Ending func(context.Context, runtime.Runner) error

	// Lacks is called by the loop while waiting claims lack room in the cluster. It must not block
	// or call the pool. nil means not called.
	Lacks func()

	// Draining reports whether the cluster is draining, in which case the pool hands out no runner.
	// The pool must get a Hint after each change. It must not block. nil means never.
	Draining func() bool
	// Image returns the status of an environment's pinned image. The pool must get a Hint after
	// each change. It must not block. nil means there are no pinned images.
	Image func(runtime.ImagePin) runtime.ImageStatus
}

// A Pool is one environment's pool. Its methods are safe for concurrent use.
type Pool struct {
	options Options
	env     atomic.Pointer[runtime.Environment]
	known   []runtime.Runner
	inbox   chan func(*loop) // messages to the loop, which calls them one by one
	hints   chan struct{}    // capacity 1; a pending hint absorbs later ones
	ended   chan struct{}    // closed when Run returns

	status    syncs.Latest[runtime.PoolStatus]
	alert     syncs.Latest[runtime.PoolAlert]
	lacking   atomic.Pointer[[]runtime.RunnerID]
	lastUse   atomic.Pointer[time.Time]
	starts    timing.Recent // durations of starts
	history   history
	positions positions
}

// New returns the pool of env. known are the cluster's runners for it; nil makes the pool list them
// before it does anything. Call Run once.
func New(env runtime.Environment, known []runtime.Runner, options Options) *Pool {
	p := &Pool{
		options: options,
		known:   known,
		inbox:   make(chan func(*loop)),
		hints:   make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	p.env.Store(&env)
	p.status.Set(runtime.PoolStatus{EnvironmentID: env.ID, Revision: env.Revision, Size: env.PoolSize, Image: options.image(env)})
	p.alert.Set(runtime.PoolAlert{EnvironmentID: env.ID})
	p.Hint() // causes the first list
	return p
}

// Environment returns the environment that was set last. It stays the same after Delete.
func (p *Pool) Environment() runtime.Environment { return *p.env.Load() }

// Closed returns a channel that is closed when Run returns.
func (p *Pool) Closed() <-chan struct{} { return p.ended }

// Ended reports whether Run has returned, so that the pool can be discarded.
func (p *Pool) Ended() bool { return syncs.Closed(p.ended) }

// Hint reports that the cluster's runners may have changed. It never blocks.
func (p *Pool) Hint() { syncs.Offer(p.hints, struct{}{}) }

// SetEnvironment changes the pool's environment, and revokes a Delete. An older revision changes
// nothing. When it returns, Status is that of the new environment.
func (p *Pool) SetEnvironment(ctx context.Context, env runtime.Environment) error {
	_, err := call(ctx, p, func(o *loop, reply func(struct{}, error)) {
		o.goal.set(env)
		env := o.goal.env
		o.pool.env.Store(&env)
		o.goal.resolve(o.pool.options)
		o.refuse(o.goal.errDeleted(), env.Claimable) // it may belong to another tenant now, or no longer be shared
		o.publish(false)
		reply(struct{}{}, nil)
	})
	return err
}

// Delete makes the pool empty itself. Idle runners are removed immediately. Claimed runners are removed
// when their claims end, or immediately if endClaimed is set. Run returns when no runner is left.
func (p *Pool) Delete(ctx context.Context, endClaimed bool) error {
	return p.send(ctx, func(o *loop) {
		o.goal.delete(endClaimed)
		o.refuse(o.goal.errDeleted(), nil)
	})
}

// A Claim requests a runner.
type Claim struct {
	Claim   runtime.Claim // the pool sets Epoch, ClaimedAt and ExpiresAt
	WaitFor time.Duration // how long to wait if no runner is idle; 0 means not at all
	Caller  string        // waiting claims of one tenant's callers take turns
	Weight  int           // turns of Claim.Tenant per turn of a tenant with weight 1; 0 means 1
	Queued  *Queued       // tracks it while it waits; nil means not tracked

	// OnQueue is called by the loop before the claim begins to wait, and not if a runner is idle. An
	// error answers the claim. It must not block or call the pool. nil means not called.
	OnQueue func() error
}

// ErrUnwanted is the cause of a claim's ctx if no retry of the claim's key will want its
// runner either.
var ErrUnwanted = errors.New("the claim is no longer wanted")

// Claim returns a runner that no other claim gets; the claim is stored durably. It returns
// NO_RUNNER_AVAILABLE if no runner became available within WaitFor. Tenants with waiting claims take
// turns by weight, and the callers of a tenant take turns within those; claims of one caller are
// served in order of arrival. If ctx ends meanwhile, a runner claimed with a key or a holder stays
// claimed for a retry, unless the cause is ErrUnwanted. Without a key or holder it is removed.
func (p *Pool) Claim(ctx context.Context, claim Claim) (runtime.Runner, error) {
	began := time.Now()
	w := &waiter{claim: claim, result: make(chan claimResult, 1)}
	if err := p.send(ctx, func(o *loop) { o.enqueue(w) }); err != nil {
		return runtime.Runner{}, err
	}
	select {
	case c := <-w.result:
		p.history.claim(time.Since(began), !c.queued, c.err)
		return c.runner, c.err
	case <-p.ended:
	case <-ctx.Done():
		err := context.Cause(ctx)
		// ctx has ended, but the loop must know, or it would claim a runner for nobody.
		_ = p.send(context.WithoutCancel(ctx), func(o *loop) { o.abandon(w, errors.Is(err, ErrUnwanted)) })
		return runtime.Runner{}, err
	}
	select { // the claim may have been answered just before the end
	case c := <-w.result:
		return c.runner, c.err
	default:
		return runtime.Runner{}, errEnded()
	}
}

// Use begins a use of a claimed runner and renews its claim. The claim can't expire until Done has
// been called for each Use. It returns RUNNER_GONE if the runner is unknown, gone or being removed,
// and CONFLICT if it isn't claimed.
func (p *Pool) Use(ctx context.Context, id runtime.RunnerID) (runtime.Runner, error) {
	return p.use(ctx, id, 1)
}

// Done ends a use and renews the claim once more. It ignores errors: an ended pool has nothing to renew.
func (p *Pool) Done(ctx context.Context, id runtime.RunnerID) {
	_, _ = p.use(context.WithoutCancel(ctx), id, -1)
}

// Renew renews a claim. When it returns, at least nine tenths of the inactivity timeout are stored
// durably. Errors are as for Use.
func (p *Pool) Renew(ctx context.Context, id runtime.RunnerID) (runtime.Runner, error) {
	return call(ctx, p, func(o *loop, reply func(runtime.Runner, error)) {
		e, err := o.held(id)
		if err != nil {
			reply(runtime.Runner{}, err)
			return
		}
		o.renew(e, func(err error) { reply(e.Runner, err) })
		o.keepPlan(e)
	})
}

func (p *Pool) use(ctx context.Context, id runtime.RunnerID, change int) (runtime.Runner, error) {
	if ctx.Err() != nil {
		return runtime.Runner{}, context.Cause(ctx)
	}
	// Without ctx's cancellation: the caller must know about every counted use. The loop answers
	// immediately.
	return call(context.WithoutCancel(ctx), p, func(o *loop, reply func(runtime.Runner, error)) {
		e, err := o.held(id)
		if err != nil {
			reply(runtime.Runner{}, err)
			return
		}
		e.busy += change
		o.renew(e, nil)
		o.keepPlan(e)
		reply(e.Runner, nil)
	})
}

// releasePatience bounds how long Release waits until a runner is gone.
const releasePatience = 10 * time.Second

// Release removes a claimed runner and returns once it is gone. It returns false if the runner is
// already gone or being removed, and CONFLICT as Use does. After ten seconds it returns
// CLUSTER_UNAVAILABLE, and the removal continues.
func (p *Pool) Release(ctx context.Context, id runtime.RunnerID) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, releasePatience,
		runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s is released but could not be removed yet; the server keeps trying", id))
	defer cancel()
	return call(ctx, p, func(o *loop, reply func(bool, error)) {
		e, err := o.held(id)
		switch {
		case err == nil:
		case runtime.CodeOf(err) == runtime.CodeRunnerGone:
			reply(false, nil)
			return
		default:
			reply(false, err)
			return
		}
		e.whenGone = append(e.whenGone, func() { reply(true, nil) })
		o.stop(e, runtime.GoneReleased, "")
	})
}

// send makes the loop call f, without waiting for it. It returns an error if the pool has ended.
func (p *Pool) send(ctx context.Context, f func(*loop)) error {
	select {
	case p.inbox <- f:
		return nil
	case <-p.ended:
		return errEnded()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call makes the loop call f, and waits for its one reply.
func call[T any](ctx context.Context, p *Pool, f func(o *loop, reply func(T, error))) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	answers := make(chan answer, 1)
	err := p.send(ctx, func(o *loop) { f(o, func(v T, err error) { answers <- answer{v, err} }) })
	if err != nil {
		return none, err
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-p.ended:
	}
	// The reply may have come just before the end.
	select {
	case a := <-answers:
		return a.value, a.err
	default:
		return none, errEnded()
	}
}

// held returns a claimed runner, or RUNNER_GONE or CONFLICT.
func (o *loop) held(id runtime.RunnerID) (*entry, error) {
	e := o.runners[id]
	switch {
	case e == nil || runtime.RunnerClaimed.Before(e.State):
		return nil, gone(id)
	case e.State != runtime.RunnerClaimed:
		return nil, runtime.Errorf(runtime.CodeConflict, "runner %s isn't claimed: get a runner with claimRunner", id)
	default:
		return e, nil
	}
}

func gone(id runtime.RunnerID) error {
	return runtime.Errorf(runtime.CodeRunnerGone, "runner %s is gone", id)
}

// errEnded returns the error of a call that the loop didn't answer before Run returned.
func errEnded() error {
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the environment's pool has ended: the server is stopping, or the environment was deleted")
}
