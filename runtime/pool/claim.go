package pool

import (
	"context"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A waiter is a claim that waits for a runner, or for its claim to be stored.
type waiter struct {
	claim     Claim
	deadline  time.Time
	abandoned bool             // the caller no longer waits for the result
	unwanted  bool             // with abandoned: no retry will want its runner either
	given     *entry           // the runner in its result
	result    chan claimResult // capacity 1, receives one value

	// Owned by the queue.
	tenant        *tenantQueue // of its tenant
	caller        *callerQueue // of its caller; nil means not in the queue
	before, after *waiter      // of the same caller
	deadlineIndex int          // index in deadlines
	dry           int          // queue.dry when it was pushed
	queued        bool         // no runner was idle when it arrived
	admitted      bool         // admit left it waiting
}

type claimResult struct {
	runner runtime.Runner
	err    error
	queued bool
}

// answer sends the result. It never blocks, because a waiter is answered once.
func (w *waiter) answer(r runtime.Runner, err error) { w.result <- claimResult{r, err, w.queued} }

// enqueue adds a claim to the queue; settle then serves it or leaves it waiting.
func (o *loop) enqueue(w *waiter) {
	if o.goal.deleted || !o.goal.env.Claimable(w.claim.Claim.Tenant) {
		w.answer(runtime.Runner{}, o.goal.errDeleted())
		return
	}
	w.deadline = time.Now().Add(w.claim.WaitFor)
	o.waiting.push(w)
	o.newest = w
}

// admit leaves the newest claim waiting, unless it was answered immediately.
func (o *loop) admit() {
	w := o.newest
	if o.newest = nil; w == nil || w.caller == nil {
		return
	}
	if w.claim.OnQueue != nil {
		if err := w.claim.OnQueue(); err != nil {
			o.waiting.remove(w)
			w.answer(runtime.Runner{}, err)
			return
		}
	}
	w.admitted = true
	if w.claim.Queued != nil {
		w.claim.Queued.begin()
	}
}

func (w *waiter) endWait() {
	if w.claim.Queued != nil {
		w.claim.Queued.end()
	}
}

// abandon removes a claim whose caller has given up. A runner that it already got stays claimed for a
// retry with its key or holder, unless that is unwanted too.
func (o *loop) abandon(w *waiter, unwanted bool) {
	w.abandoned = true
	w.unwanted = unwanted || w.claim.Claim.Key == "" && w.claim.Claim.Holder == ""
	if w.given != nil && w.unwanted {
		o.stop(w.given, runtime.GoneReleased, "the caller disconnected before the claim was answered")
	}
	o.waiting.remove(w)
}

// serve hands idle runners of the current revision, oldest first, to the waiting claims in the order
// of the queue. It returns when to call it again even if nothing changes; the zero value means never.
func (o *loop) serve(now time.Time) time.Time {
	for o.waiting.length() > 0 && !o.draining() {
		e, only := o.oldestIdle()
		if e == nil {
			o.waiting.dry++
			return time.Time{}
		}
		w := o.waiting.next()
		// The only idle runner is reserved for a while: see keptUntil. The newest claim gets it
		// if its tenant has no other one waiting.
		if only && !w.alone() {
			if o.newest != nil && o.newest.alone() {
				w = o.newest
			} else if kept := o.keptUntil(e); now.Before(kept) {
				o.waiting.dry++
				return kept
			}
		}
		o.waiting.serve(w)
		if w.admitted {
			o.pace.served(now)
		}
		o.mark(e, w, now)
	}
	return time.Time{}
}

// keptFor bounds how long an idle runner is reserved while claims wait.
const keptFor = time.Second

// keptUntil returns until when the only idle runner is reserved for tenants without other waiting
// claims: a newly arriving tenant gets it immediately. This holds for shared environments with a
// pool size. Tenants with several waiting claims get the next runner that becomes ready. If no runner
// is starting, nothing is reserved, because on a full machine each idle runner is needed.
func (o *loop) keptUntil(e *entry) time.Time {
	if !o.goal.env.Shared || o.goal.env.PoolSize == 0 || !o.making() {
		return time.Time{}
	}
	return e.idleSince.Add(keptFor)
}

// making reports whether a runner of the current revision is starting, and its start isn't blocked.
func (o *loop) making() bool {
	for _, e := range o.runners {
		if e.State == runtime.RunnerStarting && e.Message == "" && o.goal.current(e.Environment) {
			return true
		}
	}
	return false
}

// refuse answers waiting claims with an error: those of tenants for which may returns false, or all
// if may is nil.
func (o *loop) refuse(err error, may func(runtime.TenantID) bool) {
	for _, w := range slices.Clone(o.waiting.deadlines) {
		if may == nil || !may(w.claim.Claim.Tenant) {
			o.waiting.remove(w)
			w.answer(runtime.Runner{}, err)
		}
	}
}

// mark stores a claim, then answers it.
func (o *loop) mark(e *entry, w *waiter, now time.Time) {
	claim := w.claim.Claim
	claim.Epoch, claim.ClaimedAt = 1, now
	if claim.InactivityTimeout > 0 {
		claim.ExpiresAt = now.Add(claim.InactivityTimeout)
		claim.Expires = o.pool.options.Boot.Moment(claim.ExpiresAt)
	}
	next := e.Runner
	o.pool.lastUse.Store(&now)
	// No other claim gets the runner while this one is being stored.
	next.State = runtime.RunnerClaiming
	o.advance(e, next)
	o.work(e, func(ctx context.Context) error { return o.pool.options.Cluster.Mark(ctx, next.ID, claim) }, func(err error) {
		if err != nil {
			// The stored claim is unknown, so the runner can't be used by anybody.
			o.stop(e, runtime.GoneUnknown, "its claim could not be stored: "+err.Error())
			if runtime.CodeOf(err) == runtime.CodeRunnerGone && !w.abandoned {
				o.requeue(w)
				return
			}
			w.answer(runtime.Runner{}, err)
			return
		}
		e.Claim, e.renewal.stored = claim, claim.ExpiresAt
		next := e.Runner
		next.State = runtime.RunnerClaimed
		if !o.advance(e, next) { // the runner ended meanwhile
			o.changed(e)
			w.answer(runtime.Runner{}, gone(e.ID))
			return
		}
		// Neither the caller nor a retry will use the runner.
		if w.unwanted {
			o.stop(e, runtime.GoneReleased, "the caller disconnected before the claim was answered")
			return
		}
		w.given = e
		w.answer(e.Runner, nil)
	})
}

// requeue puts a claim back whose idle runner had ended before the pool knew it. Another runner serves
// it, or it waits until its deadline.
func (o *loop) requeue(w *waiter) {
	switch {
	case o.goal.deleted || !o.goal.env.Claimable(w.claim.Claim.Tenant): // see enqueue
		w.answer(runtime.Runner{}, o.goal.errDeleted())
		return
	case !w.admitted:
		o.newest = w // admit decides whether it may wait
	case w.claim.Queued != nil:
		w.claim.Queued.queued.Store(true)
	}
	o.waiting.push(w)
}

// expireWaiters answers the claims whose WaitFor has passed with an error, and returns when the next
// one expires; the zero value means none waits.
func (o *loop) expireWaiters(now time.Time) time.Time {
	for w := o.waiting.expired(now); w != nil; w = o.waiting.expired(now) {
		w.answer(runtime.Runner{}, o.noRunner())
	}
	return o.waiting.nextDeadline()
}

// reasonDraining is why runners are unavailable while the cluster drains.
const reasonDraining = "the machine is being drained: no runner starts until an operator runs `rockpool drain --off`"

// draining reports whether the cluster drains. Without Options.Draining it never does.
func (o *loop) draining() bool {
	return o.pool.options.Draining != nil && o.pool.options.Draining()
}

// noRunner returns the error of a claim that got no runner, with the best known reason.
func (o *loop) noRunner() error {
	reason := o.failures.Reason
	switch {
	case o.listing.err != "":
		reason = o.listing.err
	case o.draining():
		reason = reasonDraining
	case o.goal.awaiting:
		reason = o.goal.reasonAwaiting()
	case reason == "":
		for _, e := range o.runners {
			if e.State == runtime.RunnerStarting {
				reason = least(reason, e.Message)
			}
		}
	}
	if reason != "" {
		return runtime.Errorf(runtime.CodeNoRunnerAvailable, "no runner of environment %s is available: %s", o.goal.env.ID, reason)
	}
	return runtime.Errorf(runtime.CodeNoRunnerAvailable,
		"no runner of environment %s is available now: try again, wait with waitFor, or raise poolSize (%d)", o.goal.env.ID, o.goal.env.PoolSize)
}
