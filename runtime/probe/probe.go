// Package probe answers whether something works, for any number of callers at
// once: it tries at most once a second, and no caller waits long for a try that
// hangs.
package probe

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	every    = time.Second     // an answer is no older
	patience = 4 * time.Second // a caller waits no longer for a try
)

// ErrLate says that a try hasn't ended in time.
var ErrLate = errors.New("it doesn't answer within 4 s")

// A Probe tries one thing. Its methods are safe for concurrent use. Close it.
type Probe struct {
	try func() error

	mu     sync.Mutex // guards what follows
	last   *attempt   // nil: none yet
	closed bool
	tries  sync.WaitGroup
}

// An attempt is one try.
type attempt struct {
	began time.Time
	done  chan struct{} // closed when err is there
	err   error
}

// New returns a probe that tries by calling try, never twice at once.
func New(try func() error) *Probe { return &Probe{try: try} }

// Ask returns what a try that began within the last second found out, and when
// it began. A try that takes longer is [ErrLate] for its callers; the next one
// begins once it has ended. When ctx ends first, Ask returns its cause.
func (p *Probe) Ask(ctx context.Context) (time.Time, error) {
	a := p.attempt()
	late := time.NewTimer(time.Until(a.began.Add(patience)))
	defer late.Stop()
	select {
	case <-a.done:
		return a.began, a.err
	default:
	}
	select {
	case <-a.done:
		return a.began, a.err
	case <-late.C:
		return a.began, ErrLate
	case <-ctx.Done():
		return a.began, context.Cause(ctx)
	}
}

// attempt returns the last try, or a new one where that is too old.
func (p *Probe) attempt() *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.last; a != nil {
		select {
		case <-a.done:
			if p.closed || time.Since(a.began) < every {
				return a
			}
		default:
			return a
		}
	}
	a := &attempt{began: time.Now(), done: make(chan struct{})}
	p.last = a
	if p.closed {
		a.err = errors.New("it is closed")
		close(a.done)
		return a
	}
	p.tries.Go(func() {
		defer close(a.done)
		a.err = p.try()
	})
	return a
}

// Close waits for a try that is under way. None begins after it.
func (p *Probe) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.tries.Wait()
}
