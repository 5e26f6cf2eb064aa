package nomad

import (
	"context"
	"sync"
	"time"
)

// rounds lets all who ask for a look at the truth share one that begins after
// they asked. One is under way at a time, and they begin no closer together than
// gap. The zero value is ready.
type rounds struct {
	mu      sync.Mutex // guards what follows
	running bool
	next    *round // that begins when the one under way is done
	began   time.Time
}

// gap bounds how often lists are asked for: an event for every step of fifty
// runners that start must not make a list each.
const gap = 50 * time.Millisecond

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

// work runs rounds for as long as somebody waits for one.
func (r *rounds) work(ctx context.Context, look func(context.Context) error) {
	for {
		r.mu.Lock()
		pause := time.Until(r.began.Add(gap))
		r.mu.Unlock()
		err := wait(ctx, max(pause, 0))
		r.mu.Lock()
		current := r.next
		r.next, r.began = nil, time.Now()
		r.mu.Unlock()
		if err == nil {
			err = look(ctx)
		}
		current.err = err
		close(current.done)
		r.mu.Lock()
		if r.next == nil {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}
