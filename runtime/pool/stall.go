package pool

import "time"

// shortAfter is for how long starts of a pool must have waited for something until that is why
// the pool is short of its size, where some runners are idle. Room that comes with the next removal
// comes sooner.
const shortAfter = 2 * time.Second

// silentAfter is for how long a start for which the cluster gives no reason must
// have taken until that is why the pool is short. A start itself takes seconds.
const silentAfter = time.Minute // publish's message says it in words

// A stall is since when something lasts.
type stall struct {
	since time.Time // zero: it isn't so
}

// note notes whether it is so now, and returns when it will have lasted for after; zero: it isn't so.
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
