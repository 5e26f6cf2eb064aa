package pool

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// A renewal is what is stored of a claim's expiry, which moves on with every use.
type renewal struct {
	at      time.Time      // when the claim was renewed last
	stored  time.Time      // the expiry that is stored
	pending *runtime.Claim // one that may be stored or not
	callers []func(error)  // to be called when the expiry is stored
}

// due reports whether what is stored of a claim's expiry is so old that a use
// has it stored again.
func (e *entry) due() bool {
	return e.Claim.InactivityTimeout > 0 && e.Claim.ExpiresAt.Sub(e.renewal.stored) > e.Claim.InactivityTimeout/10
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
	if now.Sub(e.renewal.at) >= every {
		o.renew(e, nil)
	}
	return e.renewal.at.Add(every)
}

// renew moves a claim's expiry on, and has it stored if what is stored is
// more than a tenth of the time-out behind. Done, unless it is nil, is called
// once that is stored, or at once if it needn't be.
func (o *owner) renew(e *entry, done func(error)) {
	timeout := e.Claim.InactivityTimeout
	if timeout > 0 {
		e.renewal.at = time.Now()
		e.Claim.ExpiresAt = e.renewal.at.Add(timeout)
		o.pool.options.Observe(e.Runner)
		if e.due() {
			if done != nil {
				e.renewal.callers = append(e.renewal.callers, done)
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

// storeRenewal makes a claim's present expiry durable. Until it is, a restart
// would end the claim earlier, by what adopt adds.
func (o *owner) storeRenewal(e *entry) {
	if e.renewal.pending == nil { // else nobody knows whether it is stored: write the same again
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
			o.stop(e, runtime.GoneUnknown, "its claim was changed by somebody else")
		default:
			o.pool.options.Logger.Warn("a renewal could not be stored, the next use tries again",
				zap.String("runner", string(e.ID)), zap.Error(err))
		}
		if err == nil && e.State == runtime.RunnerClaimed && e.due() { // it was used again meanwhile
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
