package nomad

import (
	"context"
	"sync"
	"time"
)

// rounds lets all who ask for a look at the truth share one that begins after
// they asked. One is under way at a time, and they begin no closer together than
// a gap that grows with what the last one took. The zero value is ready.
type rounds struct {
	mu      sync.Mutex // guards what follows
	running bool
	next    *round    // that begins when the one under way is done
	free    time.Time // when the next may begin
	good    time.Time // when the last one that succeeded began
}

// gap bounds how often lists are asked for: an event for every step of fifty
// runners that start must not make a list each. Where a look takes longer, since
// CPUs are busy or there is much to list, it goes on for a fifth of the time, or,
// since somebody may wait for one, begins half a second after the last at most.
const (
	gap     = 50 * time.Millisecond
	mostGap = 500 * time.Millisecond
	share   = 5
)

type round struct {
	done chan struct{}
	err  error
}

// join waits for a round that begins from now on. Spawn runs it where nobody
// does yet.
func (r *rounds) join(ctx context.Context, spawn func(func(context.Context)) bool, look func(context.Context) error) error {
	r.mu.Lock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
	}
	mine := r.next
	if !r.running {
		r.running = spawn(func(ctx context.Context) { r.work(ctx, look) })
		if !r.running {
			r.mu.Unlock()
			return errStopping()
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

// since is how long ago the last round began that found the truth.
func (r *rounds) since() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.good)
}

// work runs rounds for as long as somebody waits for one.
func (r *rounds) work(ctx context.Context, look func(context.Context) error) {
	for {
		r.mu.Lock()
		pause := time.Until(r.free)
		r.mu.Unlock()
		err := sleep(ctx, max(pause, 0))
		r.mu.Lock()
		current := r.next
		r.next = nil
		r.mu.Unlock()
		began := time.Now()
		if err == nil {
			err = look(ctx)
		}
		current.err = err
		close(current.done)
		r.mu.Lock()
		if err == nil {
			r.good = began
		}
		r.free = began.Add(min(max(gap, share*time.Since(began)), mostGap))
		if r.next == nil {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}
