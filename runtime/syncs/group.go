// Package syncs lets goroutines share work and news. A [Group] runs one call per key. A [Probe] checks whether
// something works. A [Latest] publishes a value, and [Watchers] get hints.
package syncs

import (
	"context"
	"errors"
	"sync"
)

// ErrInput says that a key was used with a different input.
var ErrInput = errors.New("the key was used with a different input")

// A Group runs one call per key, however many callers there are, and shares its result. Make it with NewGroup
// or NewCachingGroup. Its methods are safe for concurrent use.
type Group[V any] struct {
	keep bool

	mu    sync.Mutex // guards calls
	calls map[string]*call[V]
}

type call[V any] struct {
	input string
	done  chan struct{} // closed when value and err are set
	value V
	err   error
}

// NewGroup returns a group that forgets a key when its call has ended. All callers that joined
// meanwhile get the same value and error.
func NewGroup[V any]() *Group[V] { return &Group[V]{calls: map[string]*call[V]{}} }

// NewCachingGroup returns a group that keeps each value until Forget. Only the first caller gets an
// error; the others try themselves.
func NewCachingGroup[V any]() *Group[V] { return &Group[V]{keep: true, calls: map[string]*call[V]{}} }

// Do returns the result of f for a key. Only the first call for a key runs f, in a goroutine
// started by spawn, which continues if the caller gives up; first reports whether this call did. It
// returns the error of f or spawn, [ErrInput] if the first call had a different input, or ctx's
// cause.
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

func (g *Group[V]) end(key string, c *call[V]) {
	if c.err != nil || !g.keep {
		g.mu.Lock()
		delete(g.calls, key)
		g.mu.Unlock()
	}
	close(c.done)
}

// Put stores the value of an earlier call.
func (g *Group[V]) Put(key, input string, value V) {
	c := &call[V]{input: input, done: make(chan struct{}), value: value}
	close(c.done)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[key] = c
}

// Kept returns the stored value of a key, and whether there is one.
func (g *Group[V]) Kept(key string) (value V, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls[key]
	if c == nil || !Closed(c.done) {
		return value, false
	}
	return c.value, true
}

// Forget removes the stored value of a key. It doesn't affect a running call.
func (g *Group[V]) Forget(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil && Closed(c.done) {
		delete(g.calls, key)
	}
}
