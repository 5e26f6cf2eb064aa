package plain

import (
	"io"
	"sync"
)

// mostHeld bounds the bytes that an [early] holds. A transport brings stdout and
// stderr in the order of their sending, but for a frame or two.
const mostHeld = 256 << 10

// An early is the writing end of a pipe that nobody reads yet: it holds what is
// written until it is opened. A transport brings both outputs of an exec one after
// the other. It may bring stderr before the word on stdout that the command has
// begun, and stderr is read only from that word on: a write that waits for its
// reader would block forever, and the start would never be reported.
type early struct {
	to      *io.PipeWriter
	opening sync.Once
	passes  chan struct{} // closed when nothing is held any more

	mu     sync.Mutex // guards what follows
	held   []byte
	passed bool // passes is closed
	closed bool
}

func newEarly() (*io.PipeReader, *early) {
	from, to := io.Pipe()
	return from, &early{to: to, passes: make(chan struct{})}
}

// Write implements io.Writer.
func (e *early) Write(b []byte) (int, error) {
	e.mu.Lock()
	if !e.passed && !e.closed && len(e.held)+len(b) <= mostHeld {
		e.held = append(e.held, b...)
		e.mu.Unlock()
		return len(b), nil
	}
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return 0, io.ErrClosedPipe
	}
	<-e.passes
	return e.to.Write(b)
}

// open passes on what is held and all that follows. It returns when nothing is held
// any more, or the reader is closed.
func (e *early) open() {
	e.opening.Do(func() {
		for !e.pass() {
		}
		close(e.passes)
	})
}

// pass passes on what is held, and reports whether there was nothing.
func (e *early) pass() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.held) == 0 {
		e.passed = true
		if e.closed {
			_ = e.to.Close()
		}
		return true
	}
	held := e.held
	e.held = nil
	e.mu.Unlock()
	_, _ = e.to.Write(held) // fails when nobody reads any more
	e.mu.Lock()
	return false
}

// close lets the reader read the end, behind all that was written.
func (e *early) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.passed {
		_ = e.to.Close()
	}
}
