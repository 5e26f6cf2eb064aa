package pool

import (
	"fmt"
	"time"
)

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
