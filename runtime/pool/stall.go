package pool

import "time"

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
