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
	seen := make(map[runtime.RunnerID]bool, len(truth))
	for _, r := range truth {
		seen[r.ID] = true
		e := o.runners[r.ID]
		switch {
		case e == nil && o.removed[r.ID] > begun:
		case e == nil:
			o.adopt(r)
		case e.working > 0:
			e.skipped = true // looked at when the work is done
		case e.change > begun:
			o.relist = true
		default:
			o.observe(e, r)
		}
	}
	for id, e := range o.runners {
		if !seen[id] && e.working == 0 && e.change <= begun {
			o.gone(e, runtime.GoneUnknown, "the cluster doesn't know it any more")
		}
	}
	for id, change := range o.removed {
		if change <= begun {
			delete(o.removed, id)
		}
	}
}

// adopt takes in a runner that an earlier server, or an earlier pool of this
// environment, left.
func (o *owner) adopt(r runtime.Runner) {
	e := &entry{Runner: r, durable: r.Claim.ExpiresAt}
	if !r.Claim.ExpiresAt.IsZero() {
		// What is stored may be older than the last use by a tenth of the time-out.
		e.Claim.ExpiresAt = r.Claim.ExpiresAt.Add(r.Claim.InactivityTimeout / 10)
	}
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
}

// observe takes in what the cluster says of a runner. States only move
// forward.
func (o *owner) observe(e *entry, r runtime.Runner) {
	switch {
	case r.State == runtime.RunnerGone:
		o.gone(e, r.GoneReason, r.Message)
	case e.State == runtime.RunnerStarting && r.State == runtime.RunnerIdle:
		e.State, e.Ports, e.Message = runtime.RunnerIdle, r.Ports, ""
		o.failures, o.lastFailure = Failures{}, ""
		o.changed(e)
	case e.State == runtime.RunnerStarting && r.Message != e.Message:
		e.Message = r.Message
		o.changed(e)
	}
}

// gone notes that a runner ended without us, and has it cleaned up.
func (o *owner) gone(e *entry, reason runtime.GoneReason, message string) {
	if e.State == runtime.RunnerGone {
		return
	}
	switch e.State {
	case runtime.RunnerStarting:
		o.fail(message)
		reason = runtime.GoneStartFailed
	case runtime.RunnerIdle: // or runners that die when they are ready would be made without a pause
		o.fail(message)
	}
	e.State, e.GoneReason, e.Message = runtime.RunnerGone, reason, message
	o.changed(e)
	o.remove(e)
}

// renew moves a claim's expiry on, and has it stored if what is stored is
// more than a tenth of the time-out behind. Done, unless it is nil, is called
// once that is stored, or at once if it needn't be.
func (o *owner) renew(e *entry, done func(error)) {
	timeout := e.Claim.InactivityTimeout
	if timeout > 0 {
		e.Claim.ExpiresAt = time.Now().Add(timeout)
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
