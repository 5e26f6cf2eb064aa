package connection

import (
	"context"
	"sync"
)

// A Group runs goroutines and bounds calls that end together. No goroutine outlives Wait. The zero
// value is ready. All methods are safe for concurrent use.
type Group struct {
	workers sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	cause error      // why the group ended
	ends  map[*context.CancelCauseFunc]struct{}
}

// Go runs work in a goroutine. Its context ends with the group, or when stop is called. After the
// group's end Go runs nothing and returns ok false.
func (g *Group) Go(work func(ctx context.Context)) (stop context.CancelFunc, ok bool) {
	ctx, cancel := context.WithCancelCause(context.Background())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		cancel(g.cause)
		return nil, false
	}
	release := g.bind(cancel)
	g.workers.Go(func() {
		defer release()
		work(ctx)
	})
	return func() { cancel(context.Canceled) }, true
}

// Bind returns a context that ends with ctx and with the group, with its cause. Call release.
func (g *Group) Bind(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	return ctx, g.bind(cancel)
}

// bind makes the group's end call cancel, immediately if it has ended. The caller holds mu.
func (g *Group) bind(cancel context.CancelCauseFunc) (release func()) {
	if g.cause != nil {
		cancel(g.cause)
	}
	if g.ends == nil {
		g.ends = map[*context.CancelCauseFunc]struct{}{}
	}
	g.ends[&cancel] = struct{}{}
	return func() {
		g.mu.Lock()
		delete(g.ends, &cancel)
		g.mu.Unlock()
		cancel(nil)
	}
}

// End ends the contexts of all goroutines and calls with a cause. Only the first call has an
// effect. It doesn't wait.
func (g *Group) End(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		return
	}
	g.cause = cause
	for cancel := range g.ends {
		(*cancel)(cause)
	}
}

// Wait waits for all goroutines. Call it after End.
func (g *Group) Wait() { g.workers.Wait() }

// Cause returns why the group ended, or nil before its end.
func (g *Group) Cause() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}
