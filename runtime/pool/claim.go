package pool

import (
	"context"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A waiter is a claim that waits for its runner, or for its mark.
type waiter struct {
	claim     Claim
	deadline  time.Time
	abandoned bool         // nobody listens any more
	unwanted  bool         // nor does a key's retry want its runner
	given     *entry       // the runner that it was answered with
	result    chan claimed // capacity 1, used once

	// Of the queue.
	flow          *flow   // of its tenant
	lane          *lane   // of its caller; nil: it isn't in there
	before, after *waiter // of the same caller
	place         int     // among the deadlines
	dry           int     // the queue's, when it came
	waited        bool    // no runner was idle when it came
	waits         bool    // it was left waiting
}

type claimed struct {
	runner runtime.Runner
	err    error
	waited bool
}

func (w *waiter) answer(r runtime.Runner, err error) { w.result <- claimed{r, err, w.waited} }

// enqueue takes a claim in; settle serves it, or leaves it waiting.
func (o *owner) enqueue(w *waiter) {
	if o.goal.deleted || !o.goal.env.Claimable(w.claim.Claim.Tenant) {
		w.answer(runtime.Runner{}, o.goal.errDeleted())
		return
	}
	w.deadline = time.Now().Add(w.claim.WaitFor)
	o.waiting.push(w)
	o.came = w
}

// admit leaves the claim that came last waiting, unless it was answered at once.
func (o *owner) admit() {
	w := o.came
	if o.came = nil; w == nil || w.lane == nil {
		return
	}
	if w.claim.Waits != nil {
		if err := w.claim.Waits(); err != nil {
			o.waiting.remove(w)
			w.answer(runtime.Runner{}, err)
			return
		}
	}
	w.waits = true
	if w.claim.Waiting != nil {
		w.claim.Waiting.begin()
	}
}

// left ends what began when it was left waiting.
func (w *waiter) left() {
	if w.claim.Waiting != nil {
		w.claim.Waiting.end()
	}
}

// abandon forgets a claim that nobody waits for any more. A runner that it got already
// stays for the retry of its key, or for its holder, unless that is unwanted too.
func (o *owner) abandon(w *waiter, unwanted bool) {
	w.abandoned = true
	w.unwanted = unwanted || w.claim.Claim.Key == "" && w.claim.Claim.Holder == ""
	if w.given != nil && w.unwanted {
		o.stop(w.given, runtime.GoneReleased, "the claimer went away before it had its answer")
	}
	o.waiting.remove(w)
}

// serve hands idle runners of the current revision, oldest first, to the
// claims that wait, in the order of the queue. It returns when to try again though nothing
// changed; zero: never.
func (o *owner) serve(now time.Time) time.Time {
	for o.waiting.length() > 0 && !o.draining() {
		e, only := o.oldestIdle()
		if e == nil {
			o.waiting.dry++
			return time.Time{}
		}
		w := o.waiting.next()
		if only && !w.alone() {
			if o.came != nil && o.came.alone() {
				w = o.came
			} else if kept := o.keptUntil(e); now.Before(kept) {
				o.waiting.dry++
				return kept
			}
		}
		o.waiting.serve(w)
		if w.waits {
			o.pace.served(now)
		}
		o.mark(e, w, now)
	}
	return time.Time{}
}

// keptFor bounds for how long an idle runner is kept while claims wait.
const keptFor = time.Second

// keptUntil returns until when the only idle runner of a shared environment is kept from
// tenants that have several claims waiting, so that the next tenant has it at once. They
// get the runner that is ready next instead. Where none is being made nothing is kept:
// on a full machine each idle runner counts.
func (o *owner) keptUntil(e *entry) time.Time {
	if !o.goal.env.Shared || o.goal.env.PoolSize == 0 || !o.making() {
		return time.Time{}
	}
	return e.idleSince.Add(keptFor)
}

// making reports whether a runner is starting, and waits for nothing.
func (o *owner) making() bool {
	for _, e := range o.runners {
		if e.State == runtime.RunnerStarting && e.Message == "" && o.goal.current(e.Environment) {
			return true
		}
	}
	return false
}

// refuse answers the claims that wait, of all tenants or of those that may not, with an error.
func (o *owner) refuse(err error, may func(runtime.TenantID) bool) {
	for _, w := range slices.Clone(o.waiting.deadlines) {
		if may == nil || !may(w.claim.Claim.Tenant) {
			o.waiting.remove(w)
			w.answer(runtime.Runner{}, err)
		}
	}
}

// mark makes a claim durable, then answers it.
func (o *owner) mark(e *entry, w *waiter, now time.Time) {
	claim := w.claim.Claim
	claim.Epoch, claim.ClaimedAt = 1, now
	if claim.InactivityTimeout > 0 {
		claim.ExpiresAt = now.Add(claim.InactivityTimeout)
	}
	next := e.Runner
	next.State = runtime.RunnerClaiming
	o.advance(e, next)
	o.work(e, func(ctx context.Context) error { return o.pool.options.Cluster.Mark(ctx, next.ID, claim) }, func(err error) {
		if err != nil {
			// Nobody knows what is stored: the runner is nobody's.
			o.stop(e, runtime.GoneUnknown, "its claim could not be stored: "+err.Error())
			w.answer(runtime.Runner{}, err)
			return
		}
		e.Claim, e.renewal.stored = claim, claim.ExpiresAt
		next := e.Runner
		next.State = runtime.RunnerClaimed
		if !o.advance(e, next) { // it went meanwhile
			o.changed(e)
			w.answer(runtime.Runner{}, gone(e.ID))
			return
		}
		if w.unwanted {
			o.stop(e, runtime.GoneReleased, "the claimer went away before it had its answer")
			return
		}
		w.given = e
		w.answer(e.Runner, nil)
	})
}

// expireWaiters answers the claims that have waited for as long as they may, and
// returns when the next one has; zero: none waits.
func (o *owner) expireWaiters(now time.Time) time.Time {
	for w := o.waiting.expired(now); w != nil; w = o.waiting.expired(now) {
		w.answer(runtime.Runner{}, o.noRunner())
	}
	return o.waiting.nextDeadline()
}

// reasonDraining is why runners can't be had meanwhile.
const reasonDraining = "the machine is being drained: no runner starts until `rockpool drain --off` ends that"

func (o *owner) draining() bool {
	return o.pool.options.Draining != nil && o.pool.options.Draining()
}

func (o *owner) noRunner() error {
	reason := o.failures.Reason
	switch {
	case o.listing.err != "":
		reason = o.listing.err
	case o.draining():
		reason = reasonDraining
	case o.goal.awaiting:
		reason = o.goal.reasonAwaiting()
	}
	if reason != "" {
		return runtime.Errorf(runtime.CodeNoRunnerAvailable, "no runner of environment %s is available: %s", o.goal.env.ID, reason)
	}
	return runtime.Errorf(runtime.CodeNoRunnerAvailable,
		"no runner of environment %s is available now: try again, wait with waitFor, or raise poolSize (%d)", o.goal.env.ID, o.goal.env.PoolSize)
}
