package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// Status returns the latest snapshot. It doesn't block.
func (p *Pool) Status() runtime.PoolStatus {
	status, _ := p.Watch()
	return status
}

// Watch returns the latest snapshot, and a channel that is closed once there is a newer one.
func (p *Pool) Watch() (runtime.PoolStatus, <-chan struct{}) { return p.status.Get() }

// WatchAlert returns the pool's alert, and a channel that is closed once there is a newer one. Its State
// is "" until the first alert.
func (p *Pool) WatchAlert() (runtime.PoolAlert, <-chan struct{}) { return p.alert.Get() }

// StartDurations returns how long the latest starts took, from the request to the agent's answer.
func (p *Pool) StartDurations() runtime.Distribution { return p.starts.Distribution() }

// publish publishes the loop's state and returns it. ended marks the last one.
func (o *loop) publish(ended bool) runtime.PoolStatus {
	status := runtime.PoolStatus{
		EnvironmentID: o.goal.env.ID,
		Revision:      o.goal.env.Revision,
		Size:          o.goal.env.PoolSize,
		Waiting:       o.waiting.length(),
		Image:         o.goal.image,
		Deleted:       ended && o.goal.deleted,
	}
	var blocked string
	var lacking []runtime.RunnerID
	silent := 0
	now := time.Now()
	o.stuckAt = time.Time{}
	for _, e := range o.runners {
		switch e.State {
		case runtime.RunnerStarting:
			status.Starting++
			blocked = least(blocked, e.Message)
			if e.Lacks != (runtime.Resources{}) && e.priority >= runtime.PriorityWaiting {
				lacking = append(lacking, e.ID)
			}
			if o.lasts(now, e.silent.note(now, e.Message == "", silentAfter)) {
				silent++
			}
		case runtime.RunnerIdle:
			status.Idle++
		case runtime.RunnerClaiming, runtime.RunnerClaimed:
			status.Claimed++
		case runtime.RunnerStopping, runtime.RunnerGone:
			status.Stopping++
		}
	}
	// Time the pool, not each start: with much churn no single start waits long.
	waits := o.lasts(now, o.short.note(now, blocked != "" && status.Idle < status.Size, shortAfter))
	if silent > 0 && blocked == "" {
		blocked = fmt.Sprintf("%d runners have been starting for over a minute, and the cluster gives no reason", silent)
		waits = true
	}
	switch {
	case o.listing.err != "":
		status.Reason = o.listing.err
	case o.draining():
		status.Reason = reasonDraining
	case o.goal.awaiting:
		status.Reason = o.goal.reasonAwaiting()
	case o.failures.Count > 0:
		status.Reason = o.failures.Reason
	case status.Idle == 0 && blocked != "":
		status.Reason = blocked
	case status.Idle < status.Size && waits:
		status.Reason = blocked
	default:
		status.Reason = o.yielded.reason()
	}
	o.pool.lacking.Store(&lacking)
	if len(lacking) > 0 && o.pool.options.Lacks != nil {
		o.pool.options.Lacks()
	}
	o.pool.status.Set(status)
	return status
}

// lasts reports whether a stall has lasted until at, and makes the loop check again then. A zero at
// means no stall.
func (o *loop) lasts(now, at time.Time) bool {
	if now.Before(at) {
		o.stuckAt = earlier(o.stuckAt, at)
	}
	return !at.IsZero() && !now.Before(at)
}

// least returns the smaller of two reasons, of which "" is none. So the choice among many doesn't depend
// on their order.
func least(a, b string) string {
	if a == "" || b != "" && b < a {
		return b
	}
	return a
}

// watchIdle raises and resolves the pool's alert, and returns when to call it again. While an alert
// stands, the cluster's runners are listed again and again, because hints may have been lost.
func (o *loop) watchIdle(now time.Time, status runtime.PoolStatus) time.Time {
	size := status.Size
	if o.goal.deleted || o.draining() { // no runner has to be idle
		size = 0
	}
	next, reload, wake := o.alarm.update(now, o.pool.options.Alert, status.Idle, size)
	o.alarm = next
	o.publishAlert(now, status)
	if reload {
		o.listing.alarmed = true
		o.publishAlert(now, status)
		o.list()
	}
	return wake
}

// publishAlert publishes the pool's alert if it stands or has just been resolved.
func (o *loop) publishAlert(now time.Time, status runtime.PoolStatus) {
	old, _ := o.pool.alert.Get()
	rule := o.pool.options.Alert
	alert := runtime.PoolAlert{
		EnvironmentID: status.EnvironmentID, Idle: status.Idle, Size: status.Size, Threshold: rule.Threshold,
		State: runtime.PoolAlertRaised, Since: o.alarm.raised, Reason: status.Reason,
	}
	switch {
	case !o.alarm.raised.IsZero():
		if o.listing.alarmed {
			alert.State = runtime.PoolAlertReloading
		}
		if alert.Reason == "" {
			alert.Reason = rule.String()
		}
	case !old.Standing():
		return // no alert, or resolved before
	default:
		alert.State, alert.Since, alert.Reason = runtime.PoolAlertResolved, now, "enough runners are idle"
		switch {
		case o.goal.deleted:
			alert.Reason = "the environment was deleted"
		case o.draining():
			alert.Reason = "the cluster is being drained"
		case status.Size == 0:
			alert.Reason = "no idle runners are wanted now"
		}
	}
	o.pool.alert.Set(alert)
	if o.pool.options.Alerted != nil && alert.Standing() != old.Standing() {
		o.pool.options.Alerted(o.goal.env, alert)
	}
}

// Follow sends what look returns for a pool until the pool or ctx ends. It sends the first value only
// if it stands, and nothing that the receiver doesn't see.
func Follow[T any](ctx context.Context, p *Pool, out chan<- T, look func(*Pool) (T, <-chan struct{}), stands func(T) bool, sees func() bool) {
	value, changed := look(p)
	if !stands(value) {
		changed = next(ctx, p, changed)
	}
	for changed != nil {
		value, changed = look(p)
		if !sees() {
			changed = next(ctx, p, changed)
			continue
		}
		select {
		case out <- value:
			changed = next(ctx, p, changed)
		case <-changed: // not received yet: send the newer value instead
		case <-ctx.Done():
			return
		}
	}
}

// next waits for a change of p. It returns nil if there will be none.
func next(ctx context.Context, p *Pool, changed <-chan struct{}) <-chan struct{} {
	select {
	case <-changed:
		return changed
	case <-ctx.Done():
		return nil
	case <-p.Closed():
	}
	select {
	case <-changed: // the last change came just before the end
		return changed
	default:
		return nil
	}
}

// An AlertRule defines when a pool raises an alert: when fewer than Threshold of its size were idle
// during all of Timeout.
type AlertRule struct {
	Threshold float64       // 0 to 1
	Timeout   time.Duration // 0 means no alerts
}

// String describes the violated rule.
func (r AlertRule) String() string {
	return fmt.Sprintf("fewer than %g %% of the wanted runners were idle for %v", 100*r.Threshold, r.Timeout)
}

// An alarm is the state of an alert between two looks at the pool.
type alarm struct {
	lowSince time.Time // the zero time means enough are idle
	raised   time.Time // the zero time means no standing alert
	reloadAt time.Time // when to read the cluster's state again
}

// update returns the next alarm, whether to read the cluster's state again, and when to call it again
// if nothing happens before; the zero value means never. It is a pure function.
func (a alarm) update(now time.Time, rule AlertRule, idle, size int) (next alarm, reload bool, wake time.Time) {
	if rule.Timeout == 0 || size == 0 || float64(idle) >= rule.Threshold*float64(size) {
		return alarm{}, false, time.Time{}
	}
	if a.lowSince.IsZero() {
		a.lowSince, a.reloadAt = now, now.Add(rule.Timeout)
	}
	if now.Before(a.reloadAt) {
		return a, false, a.reloadAt
	}
	if a.raised.IsZero() {
		a.raised = now
	}
	a.reloadAt = now.Add(rule.Timeout)
	return a, true, a.reloadAt
}

// shortAfter is how long starts must have been blocked before their reason is reported for a pool that
// is below its size but has idle runners. Room that the next removal frees comes sooner.
const shortAfter = 2 * time.Second

// silentAfter is how long a start without a reason from the cluster must have taken before it is
// reported as the reason. A normal start takes seconds.
const silentAfter = time.Minute // publish's message says it in words

// A stall records since when a condition has held.
type stall struct {
	since time.Time // the zero time means that it doesn't hold
}

// note records whether the condition holds now. It returns when it will have held for after; the zero value means it
// doesn't hold.
func (s *stall) note(now time.Time, so bool, after time.Duration) time.Time {
	switch {
	case !so:
		s.since = time.Time{}
		return time.Time{}
	case s.since.IsZero():
		s.since = now
	}
	return s.since.Add(after)
}
