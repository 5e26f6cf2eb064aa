package lock

import (
	"sync/atomic"
	"time"
)

// Counts count what becomes of a lock, with atomics alone. The zero value is ready, and of
// nil nothing is counted.
type Counts struct {
	since  atomic.Int64 // when it was acquired or renewed last, in ns since 1970; 0: it isn't held
	losses atomic.Int64
}

func (c *Counts) renewed(at time.Time) {
	if c != nil {
		c.since.Store(at.UnixNano())
	}
}

func (c *Counts) lose() {
	if c != nil {
		c.since.Store(0)
		c.losses.Add(1)
	}
}

func (c *Counts) release() {
	if c != nil {
		c.since.Store(0)
	}
}

// Stats are what becomes of a lock.
type Stats struct {
	Held   bool
	Age    time.Duration // since it was acquired or renewed last
	Losses int64         // times that it was held, and could not be renewed in time
}

// Read returns what is known now.
func (c *Counts) Read() Stats {
	s := Stats{Losses: c.losses.Load()}
	if since := c.since.Load(); since != 0 {
		s.Held, s.Age = true, max(time.Since(time.Unix(0, since)), 0)
	}
	return s
}
