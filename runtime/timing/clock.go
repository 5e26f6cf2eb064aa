package timing

import "time"

// A Clock shows the wall time of its start plus the time since then, so a later step of the wall clock moves
// nothing that is compared with it. It is for times that leave the process, or were stored before it began.
type Clock struct{ Began time.Time } // from time.Now

// NewClock returns a clock that shows the wall time now.
func NewClock() Clock { return Clock{time.Now()} }

// Now returns the time. Its monotonic reading is that of time.Now.
func (c Clock) Now() time.Time { return c.Began.Add(time.Since(c.Began)) }

// Anchor adds a monotonic reading to a time that was stored.
func (c Clock) Anchor(stored time.Time) time.Time {
	if stored.IsZero() {
		return stored
	}
	now := c.Now()
	return now.Add(stored.Sub(now))
}
