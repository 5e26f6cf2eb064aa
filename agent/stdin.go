package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// errExited ends writes of stdin after KindExited.
var errExited = errors.New("the execution has ended")

// A stdinWindow tracks how much stdin a session has sent and how much more its agent accepts.
type stdinWindow struct {
	turn chan struct{} // capacity 1; holds a token while a goroutine writes stdin

	mu      sync.Mutex    // guards the fields below
	known   bool          // the agent has reported its window
	sent    int64         // offset up to which stdin was sent
	limit   int64         // offset up to which the agent accepts stdin
	failed  error         // why no more can be sent; the first error
	changed chan struct{} // closed and replaced when a field above changes
}

// init prepares w. Call it before any other method.
func (w *stdinWindow) init() {
	w.turn = make(chan struct{}, 1)
	w.changed = make(chan struct{})
}

// take waits for the exclusive right to write stdin. The caller must call release if there is no
// error.
func (w *stdinWindow) take(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
	default:
		select {
		case w.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		<-w.turn
	}
	return w.failed
}

func (w *stdinWindow) release() { <-w.turn }

// wait returns the offset up to which stdin was sent and how many more bytes the agent accepts. It
// waits until that is more than 0, or stdin was sent up to wanted. In the second case it succeeds
// even if the execution has ended since.
func (w *stdinWindow) wait(ctx context.Context, wanted int64) (sent, room int64, err error) {
	for {
		w.mu.Lock()
		sent, room, err = w.sent, w.limit-w.sent, w.failed
		done := w.known && wanted <= sent
		ready := w.known && room > 0
		changed := w.changed
		w.mu.Unlock()
		switch {
		case done:
			return sent, room, nil
		case err != nil || ready:
			return sent, room, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sent, 0, context.Cause(ctx)
		}
	}
}

func (w *stdinWindow) open(received, limit int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.known:
		w.known, w.sent = true, received
	case received > w.sent, limit < w.limit:
		return fmt.Errorf("%w: stdin window %d to %d", ErrProtocol, received, limit)
	}
	// No agent buffers more than StdinWindow; a hostile one could claim it.
	w.limit = min(limit, w.sent+StdinWindow)
	w.wake()
	return nil
}

// advance records n more sent bytes. The caller has the right to write stdin.
func (w *stdinWindow) advance(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent += n
}

func (w *stdinWindow) offset() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// fail ends every wait with err. Only the first call has an effect.
func (w *stdinWindow) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = err
		w.wake()
	}
}

// wake notifies the waiting goroutines. The caller holds mu.
func (w *stdinWindow) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}
