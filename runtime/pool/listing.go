package pool

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

// Intervals of listing the cluster's runners without a hint, and after an error.
const (
	relist      = 30 * time.Second
	relistError = time.Second
)

// A listing is the state of reading the cluster's runners, one list at a time.
type listing struct {
	taken    int       // lists that were reconciled
	underway bool      // a list is running
	again    bool      // start another list when this one ends
	alarmed  bool      // the running list was requested by the alarm
	err      string    // why the last list failed; "" means it succeeded
	next     time.Time // latest start of the next list
}

// listed reports whether a list has succeeded. Before that, no runner is started or stopped.
func (l *listing) listed() bool { return l.taken > 0 }

// begin reports whether a list is to begin now. If one is running, another will follow it.
func (l *listing) begin(now time.Time) bool {
	l.next = now.Add(relist)
	if l.underway {
		l.again = true
		return false
	}
	l.underway = true
	return true
}

func (l *listing) end(now time.Time, err error) {
	l.underway = false
	l.alarmed = l.alarmed && l.again
	l.err = ""
	if err != nil {
		l.err = "the cluster doesn't answer: " + err.Error()
		l.next = now.Add(relistError)
	}
}

// changes counts the loop's changes of runners. A list that began before a change is stale about
// that runner and isn't used for it.
type changes struct {
	last    int
	removed map[runtime.RunnerID]int // number of the change that removed a runner
}

func (c *changes) note(e *entry) {
	c.last++
	e.change = c.last
}

// forget drops the removals that a list begun at a change already reflects.
func (c *changes) forget(begun int) {
	for id, change := range c.removed {
		if change <= begun {
			delete(c.removed, id)
		}
	}
}

// list reads the cluster's runners in a worker and reconciles them.
func (o *loop) list() {
	if !o.listing.begin(time.Now()) {
		return
	}
	begun := o.changes.last
	env := o.goal.env.ID
	o.spawn(func(ctx context.Context) {
		runners, err := o.pool.options.Cluster.Runners(ctx, env)
		_ = o.pool.send(ctx, func(o *loop) {
			o.listing.end(time.Now(), err)
			switch {
			case err == nil:
				o.reconcile(runners, begun)
			case !errors.Is(err, context.Canceled):
				o.pool.options.Logger.Warn("runners could not be listed; trying again", zap.String("environment", string(env)), zap.Error(err))
			}
			if o.listing.again {
				o.listing.again = false
				o.list()
			}
		})
	})
}

// reconcile applies a list of the cluster's runners. The loop went on while it was read, so the list is
// ignored for runners that changed since it began; these are listed again.
func (o *loop) reconcile(truth []runtime.Runner, begun int) {
	o.listing.taken++
	for _, r := range truth {
		e := o.runners[r.ID]
		if e != nil {
			e.seen = o.listing.taken
		}
		switch {
		case e == nil && o.changes.removed[r.ID] > begun:
		case e == nil:
			o.adopt(r).seen = o.listing.taken
		case e.working > 0:
			e.skipped = true // listed again when the work is done
		case e.change > begun:
			o.listing.again = true
		default:
			o.observe(e, r)
		}
	}
	// A runner that the list lacks is gone, unless it changed after the list began.
	for _, e := range o.runners {
		if e.seen != o.listing.taken && e.working == 0 && e.change <= begun {
			o.gone(e, runtime.GoneUnknown, "the cluster no longer lists it")
		}
	}
	o.changes.forget(begun)
}

// Adopted returns a runner as a pool adopts it. Its stored expiry may be up to a tenth of the timeout
// older than its last use, so Adopted adds that: no claim expires early. A step of the wall clock doesn't
// move the expiry, and no claim lasts longer than one that was used just now.
func Adopted(r runtime.Runner, boot timing.Boot) runtime.Runner {
	if c := &r.Claim; !c.ExpiresAt.IsZero() {
		c.ExpiresAt = boot.Time(c.Expires, c.ExpiresAt).Add(c.InactivityTimeout / 10)
		if most := time.Now().Add(c.InactivityTimeout + c.InactivityTimeout/10); c.ExpiresAt.After(most) {
			c.ExpiresAt = most
		}
	}
	return r
}

// adopt takes over a runner that an earlier server, or an earlier pool of this environment, left.
func (o *loop) adopt(r runtime.Runner) *entry {
	e := &entry{Runner: Adopted(r, o.pool.options.Boot)}
	e.renewal.stored = e.Claim.ExpiresAt.Add(-e.Claim.InactivityTimeout / 10)
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

// observe applies the cluster's state of a runner. States only move forward.
func (o *loop) observe(e *entry, r runtime.Runner) {
	switch {
	case r.State == runtime.RunnerGone:
		o.gone(e, r.GoneReason, r.Message)
	case e.State == runtime.RunnerStarting && r.State == runtime.RunnerIdle:
		// One ready runner ends the pauses between starts.
		o.failures = Failures{}
		e.idleSince = time.Now()
		if !e.wished.IsZero() {
			o.pool.starts.Add(time.Since(e.wished))
		}
		next := e.Runner
		next.State, next.Ports, next.Loaded, next.URL, next.Message = runtime.RunnerIdle, r.Ports, r.Loaded, r.URL, ""
		next.Lacks = runtime.Resources{}
		o.advance(e, next)
	case e.State == runtime.RunnerStarting && (r.Message != e.Message || r.URL != e.URL || r.Lacks != e.Lacks):
		e.Message, e.URL, e.Lacks = r.Message, r.URL, r.Lacks
		o.changed(e)
	}
}

// gone records that a runner ended unasked, and removes what is left of it.
func (o *loop) gone(e *entry, reason runtime.GoneReason, message string) {
	if e.State == runtime.RunnerGone {
		return
	}
	switch {
	case reason == runtime.GoneDrained: // which is no failure
	case e.State == runtime.RunnerStarting:
		o.fail(message)
		reason = runtime.GoneStartFailed
	case e.State == runtime.RunnerIdle: // otherwise runners that die when ready would be replaced without a pause
		o.fail(message)
	}
	next := e.Runner
	next.State, next.GoneReason, next.Message = runtime.RunnerGone, reason, message
	o.advance(e, next)
	o.remove(e)
}
