package lock

import (
	"sync/atomic"
	"time"
)

// Counts count a lock's renewals and losses. They are atomic, so they need no lock. The zero value
// is ready; a nil Counts counts nothing.
type Counts struct {
	since  atomic.Pointer[time.Time] // when it was acquired or renewed last; nil: it isn't held
	losses atomic.Int64
}

// renewed counts that the lock was acquired or renewed at a time.
func (c *Counts) renewed(at time.Time) {
	if c != nil {
		c.since.Store(&at)
	}
}

// lose counts that the lock was lost.
func (c *Counts) lose() {
	if c != nil {
		c.since.Store(nil)
		c.losses.Add(1)
	}
}

// release records that the lock isn't held any longer, without a loss.
func (c *Counts) release() {
	if c != nil {
		c.since.Store(nil)
	}
}

// Stats are a lock's state and counts.
type Stats struct {
	Held   bool
	Age    time.Duration // since it was acquired or renewed last
	Losses int64         // how often it was held and couldn't be renewed in time
}

// Read returns the current values.
func (c *Counts) Read() Stats {
	s := Stats{Losses: c.losses.Load()}
	if since := c.since.Load(); since != nil {
		s.Held, s.Age = true, max(time.Since(*since), 0)
	}
	return s
}
