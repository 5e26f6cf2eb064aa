// Package group runs goroutines that end together and are waited for, and ends calls
// under way with them.
package group

import (
	"context"
	"sync"
)

// A Group is the goroutines and calls that end when it does. The zero value is ready, and
// all methods may be called at once.
type Group struct {
	workers sync.WaitGroup

	mu    sync.Mutex // guards what follows
	cause error      // nil: it hasn't ended
	bound map[*binding]struct{}
}

type binding struct{ cancel context.CancelCauseFunc }

// Go runs work in a goroutine, whose context ends with the group, or when stop is called.
// After the group's end it runs nothing, and ok is false.
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

// Bind returns a context that ends with ctx and with the group, whose cause it has then,
// until release is called.
func (g *Group) Bind(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		cancel(g.cause)
		return ctx, func() {}
	}
	return ctx, g.bind(cancel)
}

// bind has cancel called at the group's end. The caller holds mu.
func (g *Group) bind(cancel context.CancelCauseFunc) (release func()) {
	b := &binding{cancel}
	if g.bound == nil {
		g.bound = map[*binding]struct{}{}
	}
	g.bound[b] = struct{}{}
	return func() {
		g.mu.Lock()
		delete(g.bound, b)
		g.mu.Unlock()
		cancel(nil)
	}
}

// End ends the contexts of all goroutines and calls, with a cause; the first End's counts.
// It doesn't wait.
func (g *Group) End(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		return
	}
	g.cause = cause
	for b := range g.bound {
		b.cancel(cause)
	}
}

// Wait waits for all goroutines. Call it after End.
func (g *Group) Wait() { g.workers.Wait() }

// Cause returns why the group ended; nil: it hasn't.
func (g *Group) Cause() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}
