package lock

import (
	"sync/atomic"
	"time"
)

// Counts count a lock's renewals and losses. They are atomic, so they need no lock. The zero value
// is ready; a nil Counts counts nothing.
type Counts struct {
	since  atomic.Int64 // when it was acquired or renewed last, in ns since 1970; 0: it isn't held
	losses atomic.Int64
}

// renewed counts that the lock was acquired or renewed at a time.
func (c *Counts) renewed(at time.Time) {
	if c != nil {
		c.since.Store(at.UnixNano())
	}
}

// lose counts that the lock was lost.
func (c *Counts) lose() {
	if c != nil {
		c.since.Store(0)
		c.losses.Add(1)
	}
}

// release records that the lock isn't held any longer, without a loss.
func (c *Counts) release() {
	if c != nil {
		c.since.Store(0)
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
	if since := c.since.Load(); since != 0 {
		s.Held, s.Age = true, max(time.Since(time.Unix(0, since)), 0)
	}
	return s
}
