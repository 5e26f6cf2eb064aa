package listing

import (
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// Rounds share reads: all callers of Join get the result of one that began after they called. One
// round runs at a time. The gap between the beginnings of rounds grows with the duration of the
// last one. Its methods are safe for concurrent use.
type Rounds struct {
	group *connection.Group // rounds end with it, and it waits for them
	read  func(context.Context) error

	mu      sync.Mutex // guards the fields below
	running bool       // work's goroutine runs
	next    *round     // begins when the current one has ended
	free    time.Time  // when the next round may begin
	good    time.Time  // when the last successful round began
}

// gap is the minimum time between two rounds: the events of fifty starting runners must not cause a
// list each. If a round takes longer, because CPUs are busy or the lists are long, rounds take a
// fifth of the time. The next round begins at most half a second after the last, since a caller may
// wait for it.
const (
	gap   = 50 * time.Millisecond
	share = 5
	// MostGap is the maximum time between the beginnings of two rounds while a caller waits.
	MostGap = 500 * time.Millisecond
)

// A round is one read. Its callers share err, which is set before done is closed.
type round struct {
	done chan struct{}
	err  error
}

// NewRounds returns rounds of read, which end with a group.
func NewRounds(with *connection.Group, read func(context.Context) error) *Rounds {
	return &Rounds{group: with, read: read}
}

// Join waits for a round that begins after the call, and returns its error or ctx's cause.
func (r *Rounds) Join(ctx context.Context) error {
	r.mu.Lock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
	}
	// A round that has begun is no longer next, so this one begins after the call.
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

// Since returns the time since the beginning of the last successful round.
func (r *Rounds) Since() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.good)
}

func (r *Rounds) work(ctx context.Context) {
	for {
		r.mu.Lock()
		pause := time.Until(r.free)
		r.mu.Unlock()
		err := backoff.Sleep(ctx, max(pause, 0))
		r.mu.Lock()
		// Callers that join from here on get the next round, since this one is about to read.
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
