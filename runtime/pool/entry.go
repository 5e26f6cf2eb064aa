package pool

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// An entry is a runner and the loop's bookkeeping for it.
type entry struct {
	runtime.Runner
	wished    time.Time        // when this loop requested the start; the zero time means an earlier server's did
	idleSince time.Time        // when this loop first saw it idle; the zero time means an earlier server's did
	seen      int              // number of the latest list that contained it
	priority  runtime.Priority // of its start
	busy      int              // uses in progress
	working   int              // unfinished workers for it
	work      chan struct{}    // closed when the latest worker is done; nil means there was none
	change    int              // number of the loop's latest change
	skipped   bool             // a list was stale about it
	silent    stall            // its start takes long, and the cluster gives no reason
	renewal   renewal          // of its claim
	whenGone  []func()         // called once it is gone
}

// advance changes a runner to next, announces it, and returns true. It does nothing and returns false
// unless next's state is later than the runner's. No other function changes a runner's state.
func (o *loop) advance(e *entry, next runtime.Runner) bool {
	if !e.State.Before(next.State) {
		return false
	}
	e.Runner = next
	o.changed(e)
	return true
}

// changed records and announces a change that the loop made.
func (o *loop) changed(e *entry) {
	o.changes.note(e)
	o.pool.options.Observe(e.Runner)
}

// work runs do in a worker, which Run waits for, and then done in the loop. The workers of one runner
// run one after the other.
func (o *loop) work(e *entry, do func(context.Context) error, done func(error)) {
	previous := e.work
	current := make(chan struct{})
	e.work = current
	e.working++
	o.spawn(func(ctx context.Context) {
		defer close(current)
		if previous != nil {
			<-previous
		}
		err := do(ctx)
		_ = o.pool.send(ctx, func(o *loop) {
			e.working--
			o.changes.note(e)
			done(err)
			if e.skipped && e.working == 0 {
				e.skipped = false
				o.list()
			}
		})
	})
}

// A renewal is the state of storing a claim's expiry, which moves with every use.
type renewal struct {
	at      time.Time      // last renewal
	stored  time.Time      // the stored expiry
	pending *runtime.Claim // a claim that may or may not have been stored
	callers []func(error)  // called when the expiry is stored
}

// due reports whether the stored expiry is so old that a use has to store it again.
func (e *entry) due() bool {
	return e.Claim.InactivityTimeout > 0 && e.Claim.ExpiresAt.Sub(e.renewal.stored) > e.Claim.InactivityTimeout/10
}

// keepPlan says that the present event can't change the plan: it only renewed e's claim, or began or ended a
// use of e, so no claim expires earlier. The loop settles no later than this claim needs.
func (o *loop) keepPlan(e *entry) {
	wake := e.Claim.ExpiresAt
	if e.busy > 0 {
		wake = o.keep(e, time.Now())
	}
	o.planUnchanged, o.wake = true, earlier(o.wake, wake)
}

// keep renews the claim of a used runner whenever a tenth of its timeout has passed, and returns when to
// do it again. So if the server is killed, the stored expiry is never older than Adopted makes up for.
func (o *loop) keep(e *entry, now time.Time) time.Time {
	timeout := e.Claim.InactivityTimeout
	if timeout == 0 || e.State != runtime.RunnerClaimed {
		return time.Time{}
	}
	every := timeout/10 + 1 // at a tenth exactly it isn't due yet
	if now.Sub(e.renewal.at) >= every {
		o.renew(e, nil)
	}
	return e.renewal.at.Add(every)
}

// renew extends a claim's expiry. It stores the expiry if the stored one is more than a tenth of
// the timeout behind. Then it calls done, unless nil: once the expiry is stored, or immediately if
// that isn't needed.
func (o *loop) renew(e *entry, done func(error)) {
	timeout := e.Claim.InactivityTimeout
	if timeout > 0 {
		e.renewal.at = time.Now()
		e.Claim.ExpiresAt = e.renewal.at.Add(timeout)
		e.Claim.Expires = o.pool.options.Boot.Moment(e.Claim.ExpiresAt)
		o.pool.options.Observe(e.Runner)
		if e.due() {
			if done != nil {
				e.renewal.callers = append(e.renewal.callers, done)
			}
			if e.working == 0 { // otherwise the running worker checks again when it is done
				o.storeRenewal(e)
			}
			return
		}
	}
	if done != nil {
		done(nil)
	}
}

// storeRenewal stores a claim's present expiry. Until then, a restart would end the claim earlier, by no
// more than Adopted makes up for.
func (o *loop) storeRenewal(e *entry) {
	if e.renewal.pending == nil { // otherwise it may or may not be stored: write the same claim again
		claim := e.Claim
		claim.Epoch++
		e.renewal.pending = &claim
	}
	id, claim, waiting := e.ID, *e.renewal.pending, e.renewal.callers
	e.renewal.callers = nil
	o.work(e, func(ctx context.Context) error { return o.pool.options.Cluster.Mark(ctx, id, claim) }, func(err error) {
		switch code := runtime.CodeOf(err); {
		case err == nil:
			e.renewal.pending = nil
			e.Claim.Epoch, e.renewal.stored = claim.Epoch, claim.ExpiresAt
		case code == runtime.CodeConflict || code == runtime.CodeRunnerGone:
			o.stop(e, runtime.GoneUnknown, "its claim was changed by another server")
		default:
			o.pool.options.Logger.Warn("claim renewal could not be stored; the next use tries again",
				zap.String("runner", string(e.ID)), zap.Error(err))
		}
		if err == nil && e.State == runtime.RunnerClaimed && e.due() { // used again meanwhile
			e.renewal.callers = append(waiting, e.renewal.callers...)
			o.storeRenewal(e)
			return
		}
		for _, done := range append(waiting, e.renewal.callers...) {
			done(err)
		}
		e.renewal.callers = nil
	})
}
