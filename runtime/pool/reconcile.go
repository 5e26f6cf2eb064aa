package pool

import (
	"cmp"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// reconcile takes in the listed truth. It was read while the owner went on, so
// it isn't believed about runners that changed after the list was begun; for
// those it is read again.
func (o *owner) reconcile(truth []runtime.Runner, begun int) {
	o.listed = true
	o.lists++
	for _, r := range truth {
		e := o.runners[r.ID]
		if e != nil {
			e.seen = o.lists
		}
		switch {
		case e == nil && o.removed[r.ID] > begun:
		case e == nil:
			o.adopt(r).seen = o.lists
		case e.working > 0:
			e.skipped = true // looked at when the work is done
		case e.change > begun:
			o.relist = true
		default:
			o.observe(e, r)
		}
	}
	for _, e := range o.runners {
		if e.seen != o.lists && e.working == 0 && e.change <= begun {
			o.gone(e, runtime.GoneUnknown, "the cluster doesn't know it any more")
		}
	}
	for id, change := range o.removed {
		if change <= begun {
			delete(o.removed, id)
		}
	}
}

// Adopted returns a runner as the pool that takes it in has it. The expiry that
// is stored may be older than the last use by a tenth of the time-out: nothing
// expires early.
func Adopted(r runtime.Runner) runtime.Runner {
	if !r.Claim.ExpiresAt.IsZero() {
		r.Claim.ExpiresAt = r.Claim.ExpiresAt.Add(r.Claim.InactivityTimeout / 10)
	}
	return r
}

// adopt takes in a runner that an earlier server, or an earlier pool of this
// environment, left.
func (o *owner) adopt(r runtime.Runner) *entry {
	e := &entry{Runner: Adopted(r), durable: r.Claim.ExpiresAt}
	o.runners[r.ID] = e
	switch r.State {
	case runtime.RunnerStopping:
		e.GoneReason = cmp.Or(r.GoneReason, runtime.GoneUnknown)
		o.changed(e)
		o.remove(e)
	case runtime.RunnerGone:
		o.changed(e)
		o.remove(e)
	default:
		o.changed(e)
	}
	return e
}

// observe takes in what the cluster says of a runner. States only move
// forward.
func (o *owner) observe(e *entry, r runtime.Runner) {
	switch {
	case r.State == runtime.RunnerGone:
		o.gone(e, r.GoneReason, r.Message)
	case e.State == runtime.RunnerStarting && r.State == runtime.RunnerIdle:
		o.failures = Failures{}
		if !e.wished.IsZero() {
			o.pool.durations.add(time.Since(e.wished))
		}
		next := e.Runner
		next.State, next.Ports, next.URL, next.Message = runtime.RunnerIdle, r.Ports, r.URL, ""
		o.advance(e, next)
	case e.State == runtime.RunnerStarting && (r.Message != e.Message || r.URL != e.URL):
		e.Message, e.URL = r.Message, r.URL
		o.changed(e)
	}
}

// gone notes that a runner ended without us, and has it cleaned up.
func (o *owner) gone(e *entry, reason runtime.GoneReason, message string) {
	if e.State == runtime.RunnerGone {
		return
	}
	switch {
	case reason == runtime.GoneDrained: // which is no failure of its
	case e.State == runtime.RunnerStarting:
		o.fail(message)
		reason = runtime.GoneStartFailed
	case e.State == runtime.RunnerIdle: // or runners that die when they are ready would be made without a pause
		o.fail(message)
	}
	next := e.Runner
	next.State, next.GoneReason, next.Message = runtime.RunnerGone, reason, message
	o.advance(e, next)
	o.remove(e)
}

// keep renews the claim of a runner that is in use once a tenth of its time-out
// has passed, and returns when to do it again: whenever the server is killed,
// what is stored is no older than adopt makes up for.
func (o *owner) keep(e *entry, now time.Time) time.Time {
	timeout := e.Claim.InactivityTimeout
	if timeout == 0 || e.State != runtime.RunnerClaimed {
		return time.Time{}
	}
	every := timeout/10 + 1 // at a tenth exactly it isn't due yet
	if now.Sub(e.renewed) >= every {
		o.renew(e, nil)
	}
	return e.renewed.Add(every)
}

// renew moves a claim's expiry on, and has it stored if what is stored is
// more than a tenth of the time-out behind. Done, unless it is nil, is called
// once that is stored, or at once if it needn't be.
func (o *owner) renew(e *entry, done func(error)) {
	timeout := e.Claim.InactivityTimeout
	if timeout > 0 {
		e.renewed = time.Now()
		e.Claim.ExpiresAt = e.renewed.Add(timeout)
		o.pool.options.Observe(e.Runner)
		if e.due() {
			if done != nil {
				e.renewers = append(e.renewers, done)
			}
			if e.working == 0 { // else one is under way, and looks again when it is done
				o.storeRenewal(e)
			}
			return
		}
	}
	if done != nil {
		done(nil)
	}
}
