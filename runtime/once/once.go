// Package once runs one call per key and shares its result.
package once

import (
	"context"
	"errors"
	"sync"
)

// ErrInput says that a key was used with another input.
var ErrInput = errors.New("the key was used with another input")

// A Group does things once per key. Its methods are safe for concurrent use.
type Group[V any] struct {
	keep bool

	mu    sync.Mutex // guards calls
	calls map[string]*call[V]
}

// A call is under way or done.
type call[V any] struct {
	input string
	done  chan struct{} // closed when value and err are set
	value V
	err   error
}

// Passing returns a group that forgets a key when its call has ended. All who asked
// meanwhile get the same value and error.
func Passing[V any]() *Group[V] { return &Group[V]{calls: map[string]*call[V]{}} }

// Keeping returns a group that keeps each value until Forget. An error is for the first
// who asked; the others try for themselves.
func Keeping[V any]() *Group[V] { return &Group[V]{keep: true, calls: map[string]*call[V]{}} }

// Do returns the result of f for a key. Only the first call for a key calls f, in a
// goroutine that spawn starts and that goes on when the caller leaves; first reports
// whether this call did. Errors are those of f and spawn, [ErrInput] where the first call
// had another input, and ctx's cause.
func (g *Group[V]) Do(ctx context.Context, key, input string, spawn func(func(context.Context)) error, f func(context.Context) (V, error)) (value V, first bool, err error) {
	for {
		c, first := g.call(key, input)
		if c.input != input {
			return value, false, ErrInput
		}
		if first {
			err := spawn(func(ctx context.Context) {
				c.value, c.err = f(ctx)
				g.end(key, c)
			})
			if err != nil {
				c.err = err
				g.end(key, c)
			}
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return value, first, context.Cause(ctx)
		}
		if c.err == nil || first || !g.keep {
			return c.value, first, c.err
		}
	}
}

// call returns the call of a key, and whether it is new.
func (g *Group[V]) call(key, input string) (c *call[V], isNew bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c = g.calls[key]; c != nil {
		return c, false
	}
	c = &call[V]{input: input, done: make(chan struct{})}
	g.calls[key] = c
	return c, true
}

// end lets all who wait for a call have what came of it.
func (g *Group[V]) end(key string, c *call[V]) {
	if c.err != nil || !g.keep {
		g.mu.Lock()
		delete(g.calls, key)
		g.mu.Unlock()
	}
	close(c.done)
}

// Put keeps a value that came of an earlier call.
func (g *Group[V]) Put(key, input string, value V) {
	c := &call[V]{input: input, done: make(chan struct{}), value: value}
	close(c.done)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[key] = c
}

// Kept returns the value that is kept for a key, and whether one is.
func (g *Group[V]) Kept(key string) (value V, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls[key]
	if c == nil {
		return value, false
	}
	select {
	case <-c.done:
		return c.value, true
	default:
		return value, false
	}
}

// Forget lets go of what is kept for a key, but not of a call that is under way.
func (g *Group[V]) Forget(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil {
		select {
		case <-c.done:
			delete(g.calls, key)
		default:
		}
	}
}
