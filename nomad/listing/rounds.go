package listing

import (
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/nomad/group"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// Rounds share readings: all callers of Join get one that began after they called. One is
// under way at a time, and they begin no closer together than a gap that grows with what the
// last one took.
type Rounds struct {
	group *group.Group // rounds end with it
	read  func(context.Context) error

	mu      sync.Mutex // guards what follows
	running bool
	next    *round    // that begins when the one under way is done
	free    time.Time // when the next may begin
	good    time.Time // when the last one that succeeded began
}

// gap bounds how often lists are read: an event for every step of fifty runners that start
// must not make a list each. Where a round takes longer, since CPUs are busy or there is
// much to list, rounds take a fifth of the time; the next begins half a second after the
// last at most, since a caller may wait for it.
const (
	gap   = 50 * time.Millisecond
	share = 5
	// MostGap is the longest gap between the beginnings of two rounds.
	MostGap = 500 * time.Millisecond
)

type round struct {
	done chan struct{}
	err  error
}

// NewRounds returns rounds of read, which end with a group.
func NewRounds(with *group.Group, read func(context.Context) error) *Rounds {
	return &Rounds{group: with, read: read}
}

// Join waits for a round that begins from now on, and returns its error, or ctx's cause.
func (r *Rounds) Join(ctx context.Context) error {
	r.mu.Lock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
	}
	mine := r.next
	if !r.running {
		if _, r.running = r.group.Go(r.work); !r.running {
			r.mu.Unlock()
			return r.group.Cause()
		}
	}
	r.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Since is how long ago the last round began that succeeded.
func (r *Rounds) Since() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.good)
}

// work runs rounds for as long as a caller waits for one.
func (r *Rounds) work(ctx context.Context) {
	for {
		r.mu.Lock()
		pause := time.Until(r.free)
		r.mu.Unlock()
		err := backoff.Sleep(ctx, max(pause, 0))
		r.mu.Lock()
		current := r.next
		r.next = nil
		r.mu.Unlock()
		began := time.Now()
		if err == nil {
			err = r.read(ctx)
		}
		current.err = err
		close(current.done)
		r.mu.Lock()
		if err == nil {
			r.good = began
		}
		r.free = began.Add(min(max(gap, share*time.Since(began)), MostGap))
		if r.next == nil {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}
