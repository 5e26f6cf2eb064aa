package taskrunner

import (
	"slices"
	"time"
)

// A Policy bounds the restarts of a task that doesn't start.
type Policy struct {
	Attempts int           // at most so many restarts within Interval
	Interval time.Duration // how long a restart counts against Attempts
	Delay    time.Duration // before a restart
	Jitter   float64       // a random share of Delay, up to this one, is added, so that tasks don't retry together
}

// A tracker counts a task's restarts. Its task's goroutine owns it.
type tracker struct {
	policy   Policy
	restarts []time.Time // within the interval
}

// next returns how long to wait before the restart after a failed attempt; false: there is none.
// chance is a random number from 0 to 1.
func (t *tracker) next(now time.Time, failed Failure, chance float64) (time.Duration, bool) {
	if failed.Unrecoverable {
		return 0, false
	}
	t.restarts = slices.DeleteFunc(t.restarts, func(at time.Time) bool { return now.Sub(at) >= t.policy.Interval })
	if len(t.restarts) >= t.policy.Attempts {
		return 0, false
	}
	t.restarts = append(t.restarts, now)
	return t.policy.Delay + time.Duration(chance*t.policy.Jitter*float64(t.policy.Delay)), true
}
