package pool

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// owner is the state of a pool. Only the goroutine of Run touches it.
type owner struct {
	pool  *Pool
	spawn func(func(context.Context)) // runs a worker, which Run waits for
	goal  goal

	runners map[runtime.RunnerID]*entry
	waiting queue
	came    *waiter  // the claim that was taken in, and is neither served yet nor left waiting
	pace    pace     // of the claims that wait
	members []Member // settle's, used again and again: a pool may have a thousand

	listing listing
	changes changes

	failures Failures
	short    stall     // the pool is short of its size, and starts wait for something
	stuckAt  time.Time // when the next stall has lasted for too long; zero: none will
	alarm    alarm
}

// Run owns the pool until ctx ends, or until a deleted pool is empty. Runners
// stay: they are the cluster's. Claims that wait then are answered with
// CLUSTER_UNAVAILABLE.
func (p *Pool) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	spawn := func(worker func(context.Context)) { workers.Go(func() { worker(ctx) }) }
	o := &owner{pool: p, spawn: spawn, goal: goal{env: p.Environment()}, runners: map[runtime.RunnerID]*entry{}, changes: changes{removed: map[runtime.RunnerID]int{}}}
	defer func() {
		o.publish(true)
		o.refuse(errEnded(), nil)
		close(p.ended)
		cancel()
		workers.Wait()
	}()
	if p.known != nil {
		o.reconcile(p.known, 0)
	}
	for id, uses := range p.options.Busy {
		if e := o.runners[id]; e != nil {
			e.busy = uses
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case f := <-p.inbox:
			f(o)
		case <-p.hints:
			o.list()
		case now := <-timer.C:
			if !now.Before(o.listing.next) {
				o.list()
			}
		}
		wake := o.settle(time.Now())
		if o.goal.deleted && len(o.runners) == 0 && o.listing.listed() {
			return nil
		}
		if wake.IsZero() || wake.After(o.listing.next) {
			wake = o.listing.next
		}
		timer.Reset(time.Until(wake))
	}
}

// settle serves the claims that can be served, does what Plan says, and
// publishes the result. It returns when to look again.
func (o *owner) settle(now time.Time) time.Time {
	o.goal.look(o.pool.options)
	var wake time.Time
	if o.listing.listed() {
		wake = o.serve(now)
	}
	wake = earlier(wake, o.expireWaiters(now))
	o.admit()
	o.pace.wait(now, o.waiting.length())
	if !o.listing.listed() {
		return earlier(wake, o.watchIdle(now, o.publish(false)))
	}
	o.members = o.members[:0]
	for _, e := range o.runners {
		m := Member{ID: e.ID, State: e.State, Revision: e.Environment.Revision, Foreign: o.goal.foreign(e.Environment), ExpiresAt: e.Claim.ExpiresAt}
		if e.busy > 0 {
			m.ExpiresAt = time.Time{}
			wake = earlier(wake, o.keep(e, now))
		}
		o.members = append(o.members, m)
	}
	actions := Plan(now, o.goal.spec(), o.members, o.waiting.length(), o.failures)
	for _, s := range actions.Stop {
		o.stop(o.runners[s.ID], s.Reason, "")
	}
	if o.goal.awaiting {
		actions.Start = 0
	}
	for range actions.Start {
		o.start(now)
	}
	o.hurry()
	wake = earlier(wake, actions.WakeAt)
	wake = earlier(wake, o.watchIdle(now, o.publish(false)))
	return earlier(wake, o.stuckAt)
}

// earlier returns the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// start has a worker start a runner.
func (o *owner) start(now time.Time) {
	e := &entry{Runner: runtime.Runner{
		ID: runtime.NewRunnerID(), Environment: o.goal.making, State: runtime.RunnerStarting, CreatedAt: now,
	}, wished: now}
	o.runners[e.ID] = e
	o.changed(e)
	e.priority = runtime.PriorityRefill
	if o.waiting.length() > 0 {
		e.priority = runtime.PriorityWaiting
	}
	o.ask(e)
}

// hurry makes those starts urgent that claims have come to wait for: the oldest
// refills, which may be waiting for room. As many as claims have left aren't any
// more: they would keep others from that room for ever.
func (o *owner) hurry() {
	missing := o.waiting.length()
	var refills, urgent []*entry
	for _, e := range o.runners {
		switch {
		case e.State != runtime.RunnerStarting || !o.goal.current(e.Environment):
		case e.priority >= runtime.PriorityWaiting:
			urgent = append(urgent, e)
		default:
			refills = append(refills, e)
		}
	}
	missing -= len(urgent)
	from, to := refills, runtime.PriorityWaiting
	if missing < 0 {
		from, to, missing = urgent, runtime.PriorityRefill, -missing
	}
	slices.SortFunc(from, func(a, b *entry) int { return cmp.Compare(a.ID, b.ID) })
	if to == runtime.PriorityRefill {
		slices.Reverse(from)
	}
	for _, e := range from[:min(missing, len(from))] {
		e.priority = to
		o.ask(e)
	}
}

// ask has a worker ask the cluster for a runner, with its present priority.
func (o *owner) ask(e *entry) {
	id, env, priority := e.ID, e.Environment, e.priority
	o.work(e, func(ctx context.Context) error { return o.pool.options.Cluster.Start(ctx, id, env, priority) }, func(err error) {
		if err != nil && e.State.Before(runtime.RunnerStopping) {
			o.fail(err.Error())
			o.stop(e, runtime.GoneStartFailed, err.Error())
		}
	})
}

// fail counts a failed start.
func (o *owner) fail(reason string) {
	before := o.failures.Count
	o.failures = o.failures.failed(time.Now(), reason)
	if o.failures.Count > before {
		o.pool.options.Logger.Warn("a runner could not be started", zap.String("environment", string(o.goal.env.ID)),
			zap.String("reason", reason), zap.Time("retryAt", o.failures.RetryAt))
	}
}

// stop has a worker remove a runner, unless one does already.
func (o *owner) stop(e *entry, reason runtime.GoneReason, message string) {
	next := e.Runner
	next.State, next.GoneReason, next.Message = runtime.RunnerStopping, reason, cmp.Or(message, e.Message)
	if o.advance(e, next) {
		o.remove(e)
	}
}

// remove has a worker remove e, which is STOPPING or GONE, again and again
// until it succeeds. Then the pool forgets it.
func (o *owner) remove(e *entry) {
	runner := e.Runner
	o.work(e, func(ctx context.Context) error {
		return retry(ctx, func() error {
			if runner.Claim.Held() {
				if err := o.pool.options.Ending(ctx, runner); err != nil {
					return err
				}
			}
			return o.pool.options.Cluster.Remove(ctx, runner.ID)
		}, func(err error) {
			o.pool.options.Logger.Warn("a runner could not be removed, trying again", zap.String("runner", string(runner.ID)), zap.Error(err))
		})
	}, func(err error) {
		if err != nil {
			return // ctx ended
		}
		next := e.Runner
		next.State = runtime.RunnerGone
		o.advance(e, next)
		for _, f := range e.whenGone {
			f()
		}
		delete(o.runners, e.ID)
		o.changes.removed[e.ID] = o.changes.last
	})
}

// retry calls f until it succeeds or ctx ends, with growing pauses.
func retry(ctx context.Context, f func() error, report func(error)) error {
	for pauses := (backoff.Backoff{First: 100 * time.Millisecond, Last: 30 * time.Second}); ; {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		report(err)
		if pauses.Wait(ctx) != nil {
			return err
		}
	}
}

// oldestIdle returns the runner that the next claim may have, or nil, and whether it is
// the only one.
func (o *owner) oldestIdle() (oldest *entry, only bool) {
	for _, e := range o.runners {
		if e.State != runtime.RunnerIdle || !o.goal.current(e.Environment) {
			continue
		}
		only = oldest == nil
		if only || e.ID < oldest.ID {
			oldest = e
		}
	}
	return oldest, only
}
