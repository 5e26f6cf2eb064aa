// Package backoff paces what is tried again: pauses that grow from a first to a last one.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff says how long to pause before each further try. One goroutine uses it.
type Backoff struct {
	First, Last time.Duration
	Factor      int  // by which a pause grows; 0: 2
	Jitter      bool // a pause is a random part of its length, from a half on, so that many that failed together don't come again together

	next time.Duration // 0: First
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

// Reset makes First the next pause: the last try succeeded.
func (b *Backoff) Reset() { b.next = 0 }

// Wait pauses. It returns nil after the pause, and the cause of ctx's end where that comes
// first.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep returns nil after d, and the cause of ctx's end where that comes first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
