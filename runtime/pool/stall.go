package pool

import "time"

// stuckAfter is for how long a start must have waited for something until it
// is why the pool is short of its size, where some runners are idle. Room that comes
// with the next removal comes sooner.
const stuckAfter = 10 * time.Second

// silentAfter is for how long a start for which the cluster gives no reason must
// have taken until that is why the pool is short. A start itself takes seconds.
const silentAfter = time.Minute // publish's message says it in words

// A stall is since when a start has waited, and whether the cluster says for what.
type stall struct {
	since  time.Time
	silent bool // the cluster doesn't say for what
}

// note notes what a start waits for now, and returns when that is too long.
func (s *stall) note(now time.Time, message string) time.Time {
	if silent := message == ""; s.since.IsZero() || silent != s.silent {
		s.since, s.silent = now, silent
	}
	if s.silent {
		return s.since.Add(silentAfter)
	}
	return s.since.Add(stuckAfter)
}
