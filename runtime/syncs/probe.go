package syncs

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	every    = time.Second     // maximum age of a result
	patience = 4 * time.Second // how long a caller waits for a try
)

// ErrProbeLate says that a try hasn't ended in time.
var ErrProbeLate = errors.New("it has not responded for 4 s")

// A Probe checks whether one thing works, for any number of callers. It tries at most once a second, and no
// caller waits long for a try that hangs. Its methods are safe for concurrent use. Close it.
type Probe struct {
	try func() error // may block for long; at most one runs at a time

	mu     sync.Mutex // guards the fields below
	last   *attempt   // nil means none yet
	closed bool
	tries  sync.WaitGroup // Close waits for them
}

type attempt struct {
	began time.Time
	done  chan struct{} // closed when err is set
	err   error
}

// NewProbe returns a probe that calls try, never concurrently. Close it.
func NewProbe(try func() error) *Probe { return &Probe{try: try} }

// Check returns the result of a try that began within the last second, and when it began. If a try
// takes longer than 4 s, callers get [ErrProbeLate], and the next try begins once it has ended. If ctx
// ends first, Check returns its cause.
func (p *Probe) Check(ctx context.Context) (time.Time, error) {
	a := p.attempt()
	var err error
	select {
	case <-a.done:
	case <-time.After(time.Until(a.began.Add(patience))):
		err = ErrProbeLate
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if Closed(a.done) { // a result that has arrived counts even if the time is up
		err = a.err
	}
	return a.began, err
}

func (p *Probe) attempt() *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.last; a != nil && (p.closed || !Closed(a.done) || time.Since(a.began) < every) {
		return a
	}
	a := &attempt{began: time.Now(), done: make(chan struct{})}
	p.last = a
	if p.closed {
		a.err = errors.New("the probe is closed")
		close(a.done)
		return a
	}
	p.tries.Go(func() {
		defer close(a.done)
		a.err = p.try()
	})
	return a
}

// Close waits for a running try. No try begins after it.
func (p *Probe) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.tries.Wait()
}
