package pool

import (
	"fmt"
	"time"
)

// An AlertRule says when a pool alerts: when fewer than Threshold of its size
// were idle for all of Timeout.
type AlertRule struct {
	Threshold float64       // 0 to 1
	Timeout   time.Duration // 0: never
}

// String says in words what was broken.
func (r AlertRule) String() string {
	return fmt.Sprintf("fewer than %g %% of the wanted runners were idle for %v", 100*r.Threshold, r.Timeout)
}

// An alarm is what an alert needs to be remembered from one look at a pool to
// the next.
type alarm struct {
	lowSince time.Time // zero: enough are idle
	raised   time.Time // zero: no alert stands
	reloadAt time.Time // the cluster's truth is to be read then
}

// look returns the alarm after a look at a pool, whether the truth has to be
// read again, and when to look again if nothing happens before; zero: never. It
// is pure.
func (a alarm) look(now time.Time, rule AlertRule, idle, size int) (next alarm, reload bool, wake time.Time) {
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
