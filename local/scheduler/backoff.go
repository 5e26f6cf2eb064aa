package scheduler

import (
	"context"
	"time"
)

// How long a worker pauses after an error: from a base, four times as long
// after each further one, to a limit.
const (
	fastBase  = 20 * time.Millisecond
	fastLimit = time.Second
	slowBase  = 500 * time.Millisecond
	slowLimit = 10 * time.Second
	growth    = 4
)

// backoff pauses after errors. One goroutine uses it.
type backoff struct {
	base, limit time.Duration
	next        time.Duration // 0: base
}

// wait pauses; ctx, or early being closed, ends that.
func (b *backoff) wait(ctx context.Context, early <-chan struct{}) {
	timer := time.NewTimer(b.step())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
	}
}

// step returns the next pause.
func (b *backoff) step() time.Duration {
	pause := max(b.next, b.base)
	b.next = min(pause*growth, b.limit)
	return pause
}

// reset follows a success.
func (b *backoff) reset() { b.next = 0 }
