// Package backoff paces retries: pauses grow from a first to a last one.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff computes the pauses between retries. It is for one goroutine.
type Backoff struct {
	First, Last time.Duration
	Factor      int // factor by which pauses grow; 0 means 2
	// Jitter makes pauses random, from half of their length to all of it, so that clients which failed
	// together don't retry together.
	Jitter bool

	next time.Duration // 0 means next is First
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	pause := max(b.next, b.First)
	b.next = min(pause*time.Duration(max(b.Factor, 2)), b.Last)
	if b.Jitter {
		pause = pause/2 + rand.N(pause/2+1)
	}
	return pause
}

// Reset makes First the next pause. Call it after a success.
func (b *Backoff) Reset() { b.next = 0 }

// Wait pauses. It returns nil after the pause, or ctx's cause if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep waits for d. It returns nil afterwards, or ctx's cause if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
