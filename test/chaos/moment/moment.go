// Package moment announces what clients are doing, so that a server can be killed while they do it.
package moment

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// A Moment is an activity during which a server can be killed.
type Moment int

// The moments.
const (
	Any Moment = iota
	Claim
	Start
	Upload
	Release
	Change // of an environment, which makes and removes many runners
	Making // of a sandbox: seen from outside, not announced by a client
	Count  // number of moments
)

func (m Moment) String() string {
	return [...]string{"at any time", "during a claim", "during a start", "during an upload", "during a release", "during a change", "while a sandbox was made"}[m]
}

// A Timing announces when moments begin and end. Its methods are safe for concurrent use.
type Timing struct {
	began  [Count]chan struct{} // capacity 1
	during [Count]atomic.Int64
	last   [Count]atomic.Int64 // when each began last, in nanoseconds since 1970
}

// NewTiming returns a Timing without moments.
func NewTiming() *Timing {
	t := &Timing{}
	for m := range t.began {
		t.began[m] = make(chan struct{}, 1)
	}
	return t
}

// Begin announces that a moment begins. The caller calls over at its end.
func (t *Timing) Begin(m Moment) (over func()) {
	t.during[m].Add(1)
	t.last[m].Store(time.Now().UnixNano())
	select {
	case t.began[m] <- struct{}{}:
	default:
	}
	return func() { t.during[m].Add(-1) }
}

// Await waits for the next such moment, then for a further time. It gives up after patience.
func (t *Timing) Await(ctx context.Context, m Moment, after, patience time.Duration) {
	select {
	case <-t.began[m]: // an earlier one
	default:
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	if m != Any {
		select {
		case <-t.began[m]:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	Pause(ctx, after)
}

// After this time a claim has been stored, and waits for a runner.
const waits = 10 * time.Millisecond

// Lasting returns the moments that have begun and aren't over.
func (t *Timing) Lasting() []Moment {
	var all []Moment
	for m := range Count {
		if t.during[m].Load() > 0 && (m != Claim || time.Now().UnixNano()-t.last[m].Load() < int64(waits)) {
			all = append(all, m)
		}
	}
	return all
}

// Pause waits, or returns early when ctx ends. It spins for times that are shorter than a timer's
// inaccuracy.
func Pause(ctx context.Context, d time.Duration) {
	if d < 2*time.Millisecond {
		for began := time.Now(); time.Since(began) < d; {
			runtime.Gosched()
		}
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
