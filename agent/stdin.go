package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

var errExited = errors.New("the execution has ended")

// A stdinWindow is what a session knows about the stdin that its agent takes.
type stdinWindow struct {
	turn chan struct{} // holds a token while someone writes stdin

	mu      sync.Mutex // guards what is below
	known   bool       // the agent told how much it has
	sent    int64
	limit   int64
	failed  error
	changed chan struct{} // closed and replaced when any of them changes
}

func (w *stdinWindow) init() {
	w.turn = make(chan struct{}, 1)
	w.changed = make(chan struct{})
}

// take waits for the turn to write stdin.
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

// wait returns where the stdin has been sent to and how much more the agent
// takes, as soon as that is more than nothing or the stdin was sent as far as
// wanted: then it is of no matter that the execution has ended since.
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

// open takes in what the agent told.
func (w *stdinWindow) open(received, limit int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.known:
		w.known, w.sent = true, received
	case received > w.sent, limit < w.limit:
		return fmt.Errorf("%w: stdin window %d to %d", ErrProtocol, received, limit)
	}
	// More than this the agent couldn't hold: it would be a lie.
	w.limit = min(limit, w.sent+StdinWindow)
	w.wake()
	return nil
}

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

// fail ends every wait. The first error stays.
func (w *stdinWindow) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = err
		w.wake()
	}
}

// wake is called with mu held.
func (w *stdinWindow) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}
