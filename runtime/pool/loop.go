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

// A loop is the state of a pool. Only the goroutine of Run uses it.
type loop struct {
	pool  *Pool
	spawn func(func(context.Context)) // runs a worker that Run waits for
	goal  goal

	runners map[runtime.RunnerID]*entry
	waiting queue
	newest  *waiter  // the claim that was just enqueued; settle serves or admits it
	pace    pace     // of the waiting claims
	members []Member // scratch space of settle, since a pool may have a thousand

	listing       listing
	changes       changes
	wake          time.Time // when to settle if nothing happens before
	planUnchanged bool      // the present event can't change the plan; see keepPlan

	failures Failures
	yielded  yieldedRunners
	short    stall     // the pool is below its size, and starts are blocked
	stuckAt  time.Time // when the next stall has lasted too long; the zero time means never
	alarm    alarm
}

// Run owns the pool until ctx ends, or until a deleted pool is empty, and then returns ctx's cause or
// nil. Runners stay, because they belong to the cluster. Waiting claims get CLUSTER_UNAVAILABLE. Run
// waits for its workers. Call it once.
func (p *Pool) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	spawn := func(worker func(context.Context)) { workers.Go(func() { worker(ctx) }) }
	o := &loop{pool: p, spawn: spawn, goal: goal{env: p.Environment()}, runners: map[runtime.RunnerID]*entry{}, changes: changes{removed: map[runtime.RunnerID]int{}}}
	defer func() {
		o.publish(true)
		o.refuse(errEnded(), nil) // before ended is closed, so that waiting claims get this error
		close(p.ended)
		cancel()
		workers.Wait()
	}()
	if p.known != nil {
		o.reconcile(p.known, 0)
	}
	for id, uses := range p.options.Busy { // executions that continue from an earlier server
		if e := o.runners[id]; e != nil {
			e.busy = uses
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		o.planUnchanged = false
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case f := <-p.inbox:
			f(o)
		case <-p.hints:
			o.list()
		// The timer also fires when only settle is due.
		case now := <-timer.C:
			if !now.Before(o.listing.next) {
				o.list()
			}
		}
		if !o.planUnchanged {
			o.wake = o.settle(time.Now())
			// Without a list, there may be runners that the pool doesn't know.
			if o.goal.deleted && len(o.runners) == 0 && o.listing.listed() {
				return nil
			}
		}
		if o.wake.IsZero() || o.wake.After(o.listing.next) {
			o.wake = o.listing.next
		}
		timer.Reset(time.Until(o.wake))
	}
}

// settle serves claims, carries out what Plan decides, and publishes the result. It returns when to
// call it again.
func (o *loop) settle(now time.Time) time.Time {
	o.goal.resolve(o.pool.options)
	// Claims are served before Plan runs, so that Plan sees how many still wait.
	var wake time.Time
	if o.listing.listed() {
		wake = o.serve(now)
	}
	wake = earlier(wake, o.expireWaiters(now))
	o.admit()
	o.pace.wait(now, o.waiting.length())
	if !o.listing.listed() { // Plan must know all runners, or it would start too many
		return earlier(wake, o.watchIdle(now, o.publish(false)))
	}
	o.members = o.members[:0]
	for _, e := range o.runners {
		m := Member{ID: e.ID, State: e.State, Revision: e.Environment.Revision, Foreign: o.goal.foreign(e.Environment), ExpiresAt: e.Claim.ExpiresAt}
		if e.busy > 0 {
			m.ExpiresAt = time.Time{} // a runner in use doesn't expire
			wake = earlier(wake, o.keep(e, now))
		}
		o.members = append(o.members, m)
	}
	spec, restored := o.spec(now)
	wake = earlier(wake, restored)
	actions := Plan(now, spec, o.members, o.waiting.length(), o.failures)
	for _, s := range actions.Stop {
		o.stop(o.runners[s.ID], s.Reason, "")
	}
	if o.goal.awaiting {
		actions.Start = 0 // the image isn't available yet
	}
	for range actions.Start {
		o.start(now)
	}
	// New starts count too, so this comes after them.
	o.raisePriorities()
	wake = earlier(wake, actions.WakeAt)
	wake = earlier(wake, o.watchIdle(now, o.publish(false)))
	return earlier(wake, o.stuckAt)
}

// earlier returns the earlier of two times; the zero value means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func (o *loop) start(now time.Time) {
	e := &entry{Runner: runtime.Runner{
		ID: runtime.NewRunnerID(), Environment: o.goal.making, State: runtime.RunnerStarting, CreatedAt: now,
	}, wished: now}
	o.runners[e.ID] = e
	o.changed(e)
	// A start that a claim waits for goes before refills.
	e.priority = runtime.PriorityRefill
	if o.waiting.length() > 0 {
		e.priority = runtime.PriorityWaiting
	}
	o.request(e)
}

// raisePriorities raises the priority of as many starts as there are waiting claims, oldest refills first, since
// these may be waiting for room. It lowers the priority again of starts whose claims have left;
// otherwise they would keep others from that room forever.
func (o *loop) raisePriorities() {
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
		o.request(e)
	}
}

// request requests a runner from the cluster in a worker, with its present priority.
func (o *loop) request(e *entry) {
	id, env, priority := e.ID, e.Environment, e.priority
	o.work(e, func(ctx context.Context) error { return o.pool.options.Cluster.Start(ctx, id, env, priority) }, func(err error) {
		// A runner that is being removed has its reason already.
		if err != nil && e.State.Before(runtime.RunnerStopping) {
			o.fail(err.Error())
			o.stop(e, runtime.GoneStartFailed, err.Error())
		}
	})
}

func (o *loop) fail(reason string) {
	before := o.failures.Count
	o.failures = o.failures.failed(time.Now(), reason)
	if o.failures.Count > before {
		o.pool.options.Logger.Warn("runner could not be started; trying again", zap.String("environment", string(o.goal.env.ID)),
			zap.String("reason", reason), zap.Time("retryAt", o.failures.RetryAt))
	}
}

// stop removes a runner in a worker, unless it is being removed already.
func (o *loop) stop(e *entry, reason runtime.GoneReason, message string) {
	next := e.Runner
	next.State, next.GoneReason, next.Message = runtime.RunnerStopping, reason, cmp.Or(message, e.Message)
	if o.advance(e, next) {
		o.remove(e)
	}
}

// remove removes e, which is STOPPING or GONE, in a worker that retries until it succeeds. Then the
// pool forgets it.
func (o *loop) remove(e *entry) {
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
			o.pool.options.Logger.Warn("runner could not be removed; trying again", zap.String("runner", string(runner.ID)), zap.Error(err))
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

// retry calls f until it succeeds or ctx ends, with growing pauses, and reports each error.
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

// oldestIdle returns the idle runner for the next claim, or nil, and whether it is the only one.
func (o *loop) oldestIdle() (oldest *entry, only bool) {
	for _, e := range o.runners {
		if e.State != runtime.RunnerIdle || !o.goal.current(e.Environment) {
			continue
		}
		only = oldest == nil
		// Ids sort by age.
		if only || e.ID < oldest.ID {
			oldest = e
		}
	}
	return oldest, only
}
