// Package pool keeps one environment's runners: enough of them warm, each
// handed to one claimer at most, none held longer than its claim.
//
// One goroutine, Pool.Run, owns all state in plain variables; everything else
// sends it messages. What is slow runs in workers that it waits for and that
// report back as messages. A pure function, Plan, decides what to start and to
// stop after every change. Hints from the cluster cause a new look at the
// listed truth and nothing else.
//
// A runner's state moves forward only, in owner.advance:
//
//	STARTING ─ its agent answered ─▶ IDLE ─ a claim gets it ─▶ CLAIMING ─ stored ─▶ CLAIMED
//	    │                             │                           │                    │
//	    ├──────────── Plan, Release, or a failed start or mark ───┴────────────────────┤
//	    │                                                                              ▼
//	    └── it ended by itself ─▶ GONE ◀───────────────── removed ───────────────── STOPPING
package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/latest"
	"github.com/rockpool/rockpool/runtime/timing"
)

// A Cluster is what a pool needs of a runtime.Cluster.
type Cluster interface {
	Start(ctx context.Context, id runtime.RunnerID, env runtime.Environment, priority runtime.Priority) error
	Mark(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error
	Remove(ctx context.Context, id runtime.RunnerID) error
	Runners(ctx context.Context, env runtime.EnvironmentID) ([]runtime.Runner, error)
}

// Options are what a pool works with.
type Options struct {
	Cluster Cluster
	Logger  *zap.Logger
	Alert   AlertRule

	// Busy are the uses of known runners that an earlier server began, by runner:
	// each ends with a Done.
	Busy map[runtime.RunnerID]int

	// Observe is called by the owner with a runner's new state after every
	// change. It must not block, nor call the pool.
	Observe func(runtime.Runner)

	// Alerted is called by the owner with each alert that is raised or resolved. It must not
	// block, nor call the pool. nil: nothing is called.
	Alerted func(runtime.Environment, runtime.PoolAlert)

	// Ending is called before a runner that was claimed is removed, and again
	// if the removal has to be tried again. An error delays the removal.
	Ending func(context.Context, runtime.Runner) error

	// Draining reports whether the cluster is being drained, and hands out no
	// runner; after a change of that the pool gets a Hint. It must not block. nil:
	// it never is.
	Draining func() bool
	// Image says how far the cluster is with an environment's pinned image; after a
	// change the pool gets a Hint. It must not block. nil: there are none.
	Image func(runtime.ImagePin) runtime.ImageStatus
}

// A Pool is one environment's pool. Its methods are safe for concurrent use.
type Pool struct {
	options Options
	env     atomic.Pointer[runtime.Environment]
	known   []runtime.Runner
	inbox   chan func(*owner)
	hints   chan struct{} // capacity 1
	ended   chan struct{} // closed when Run returns

	status  latest.Value[runtime.PoolStatus]
	alert   latest.Value[runtime.PoolAlert]
	starts  timing.Recent // how long they took
	history history
	places  places
}

// New returns the pool of env. Known are the runners that the cluster has for
// it; nil means that the pool has to list them before it does anything. Its Run
// must be called once.
func New(env runtime.Environment, known []runtime.Runner, options Options) *Pool {
	p := &Pool{
		options: options,
		known:   known,
		inbox:   make(chan func(*owner)),
		hints:   make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	p.env.Store(&env)
	p.status.Set(runtime.PoolStatus{EnvironmentID: env.ID, Revision: env.Revision, Size: env.PoolSize, Image: options.image(env)})
	p.alert.Set(runtime.PoolAlert{EnvironmentID: env.ID})
	p.Hint() // the first look
	return p
}

// Environment returns the pool's environment as SetEnvironment set it last, also after Delete.
func (p *Pool) Environment() runtime.Environment { return *p.env.Load() }

// Closed is closed when Run returns.
func (p *Pool) Closed() <-chan struct{} { return p.ended }

// Ended reports whether Run has returned: nothing of it is left to do.
func (p *Pool) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Hint says that the cluster's runners may have changed. It never blocks.
func (p *Pool) Hint() {
	select {
	case p.hints <- struct{}{}:
	default:
	}
}

// SetEnvironment changes what the pool is to be, and takes back a Delete. A
// revision that is older than the present one changes nothing. When it returns,
// Status is that of the new one.
func (p *Pool) SetEnvironment(ctx context.Context, env runtime.Environment) error {
	_, err := ask(ctx, p, func(o *owner, reply func(struct{}, error)) {
		o.goal.set(env)
		env := o.goal.env
		o.pool.env.Store(&env)
		o.goal.look(o.pool.options)
		o.refuse(o.goal.errDeleted(), env.Claimable) // it went to another tenant, or isn't shared any more
		o.publish(false)
		reply(struct{}{}, nil)
	})
	return err
}

// Delete makes the pool empty itself: idle runners go at once, claimed ones
// when their claims end, or at once with endClaimed. Run returns once nothing
// is left.
func (p *Pool) Delete(ctx context.Context, endClaimed bool) error {
	return p.tell(ctx, func(o *owner) {
		o.goal.delete(endClaimed)
		o.refuse(o.goal.errDeleted(), nil)
	})
}

// A Claim asks for a runner.
type Claim struct {
	Claim   runtime.Claim // Epoch, ClaimedAt and ExpiresAt are the pool's to set
	WaitFor time.Duration // for a runner, where none is idle; 0: not at all
	Caller  string        // whose it is: callers of one tenant whose claims wait take turns
	Weight  int           // turns of its tenant, Claim.Tenant, for each turn of a tenant of weight 1; 0: 1
	Waiting *Waiting      // follows it while it waits; nil: nobody does

	// Waits is called by the owner before the claim is left waiting, which it isn't
	// where a runner is there at once. An error answers the claim. It must neither block
	// nor call the pool. nil: nothing is called.
	Waits func() error
}

// ErrUnwanted is the cause of the end of a claim's ctx where its runner isn't wanted by
// the retry of its key either.
var ErrUnwanted = errors.New("the claim isn't wanted any more")

// Claim returns a runner that nobody else gets; its claim is durable.
// NO_RUNNER_AVAILABLE means that none was there for as long as it could wait. Tenants whose
// claims wait take turns by weight, and the callers of a tenant within those; the claims of one caller
// are served in the order in which they came. Where ctx ends while the claim is
// being made, a runner claimed with a key or for a holder stays claimed, for the retry, unless the
// cause is ErrUnwanted; without either it goes.
func (p *Pool) Claim(ctx context.Context, claim Claim) (runtime.Runner, error) {
	began := time.Now()
	w := &waiter{claim: claim, result: make(chan claimed, 1)}
	if err := p.tell(ctx, func(o *owner) { o.enqueue(w) }); err != nil {
		return runtime.Runner{}, err
	}
	select {
	case c := <-w.result:
		p.history.claim(time.Since(began), !c.waited, c.err)
		return c.runner, c.err
	case <-p.ended:
	case <-ctx.Done():
		err := context.Cause(ctx)
		_ = p.tell(context.WithoutCancel(ctx), func(o *owner) { o.abandon(w, errors.Is(err, ErrUnwanted)) })
		return runtime.Runner{}, err
	}
	select { // it may have been answered just before the end
	case c := <-w.result:
		return c.runner, c.err
	default:
		return runtime.Runner{}, errEnded()
	}
}

// Use begins a use of a claimed runner, which can't expire before Done is
// called as often, and renews its claim. RUNNER_GONE means that it isn't there
// (any more), CONFLICT that nobody has claimed it.
func (p *Pool) Use(ctx context.Context, id runtime.RunnerID) (runtime.Runner, error) {
	return p.use(ctx, id, 1)
}

// Done ends a use and renews the claim once more. It never fails: a pool that
// ended has nothing to renew.
func (p *Pool) Done(ctx context.Context, id runtime.RunnerID) {
	_, _ = p.use(context.WithoutCancel(ctx), id, -1)
}

// Renew renews a claim. When it returns, nine tenths of the inactivity timeout
// at least are durable.
func (p *Pool) Renew(ctx context.Context, id runtime.RunnerID) (runtime.Runner, error) {
	return ask(ctx, p, func(o *owner, reply func(runtime.Runner, error)) {
		e, err := o.held(id)
		if err != nil {
			reply(runtime.Runner{}, err)
			return
		}
		o.renew(e, func(err error) { reply(e.Runner, err) })
	})
}

func (p *Pool) use(ctx context.Context, id runtime.RunnerID, change int) (runtime.Runner, error) {
	if ctx.Err() != nil {
		return runtime.Runner{}, context.Cause(ctx)
	}
	// Not with ctx: a use that was counted must be known to the caller. The owner
	// answers at once.
	return ask(context.WithoutCancel(ctx), p, func(o *owner, reply func(runtime.Runner, error)) {
		e, err := o.held(id)
		if err != nil {
			reply(runtime.Runner{}, err)
			return
		}
		e.busy += change
		o.renew(e, nil)
		reply(e.Runner, nil)
	})
}

// releasePatience is how long Release waits for a runner to be gone.
const releasePatience = 10 * time.Second

// Release removes a claimed runner and returns once it is gone; false means
// that it was gone, or going, already. CONFLICT as for Use.
func (p *Pool) Release(ctx context.Context, id runtime.RunnerID) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, releasePatience,
		runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s is released, but can't be removed yet; that goes on", id))
	defer cancel()
	return ask(ctx, p, func(o *owner, reply func(bool, error)) {
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

// tell has the owner call f. It returns an error if the owner ended before.
func (p *Pool) tell(ctx context.Context, f func(*owner)) error {
	select {
	case p.inbox <- f:
		return nil
	case <-p.ended:
		return errEnded()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask has the owner call f, and waits for the one reply.
func ask[T any](ctx context.Context, p *Pool, f func(o *owner, reply func(T, error))) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	answers := make(chan answer, 1)
	err := p.tell(ctx, func(o *owner) { f(o, func(v T, err error) { answers <- answer{v, err} }) })
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
	select {
	case a := <-answers:
		return a.value, a.err
	default:
		return none, errEnded()
	}
}

// held returns a claimed runner.
func (o *owner) held(id runtime.RunnerID) (*entry, error) {
	e := o.runners[id]
	switch {
	case e == nil || runtime.RunnerClaimed.Before(e.State):
		return nil, gone(id)
	case e.State != runtime.RunnerClaimed:
		return nil, runtime.Errorf(runtime.CodeConflict, "nobody has claimed runner %s: get one with claimRunner", id)
	default:
		return e, nil
	}
}

func gone(id runtime.RunnerID) error {
	return runtime.Errorf(runtime.CodeRunnerGone, "runner %s is gone", id)
}

func errEnded() error {
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the pool has ended")
}
