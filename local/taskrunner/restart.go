package taskrunner

import (
	"slices"
	"time"
)

// A Policy says how often a task that can't be started is tried again.
type Policy struct {
	Attempts int           // restarts within Interval at most
	Interval time.Duration // how long a restart counts
	Delay    time.Duration // before a restart
	Jitter   float64       // the share of Delay that is added at most, by chance, so that not all try at once
}

// A tracker counts restarts.
type tracker struct {
	policy   Policy
	restarts []time.Time // within the interval
}

// next returns how long to wait before another attempt after one that failed,
// or false if there is to be none. Chance is 0 to 1.
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
