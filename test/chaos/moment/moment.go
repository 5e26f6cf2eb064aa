// Package moment says what clients are doing just now, so that a server can be killed
// during it.
package moment

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// A Moment is something during which a server can be killed on purpose.
type Moment int

// The moments.
const (
	Any Moment = iota
	Claim
	Start
	Upload
	Release
	Change // of an environment, which makes and removes many runners
	Making // of a sandbox: seen from outside, not told by a client
	Count  // of the moments
)

func (m Moment) String() string {
	return [...]string{"at any time", "during a claim", "during a start", "during an upload", "during a release", "during a change", "while a sandbox was made"}[m]
}

// A Timing tells when moments begin, and which last. Its methods may be called
// at once.
type Timing struct {
	began  [Count]chan struct{} // capacity 1
	during [Count]atomic.Int64
	last   [Count]atomic.Int64 // when one began, in nanoseconds since 1970
}

// NewTiming returns one of which nothing has begun.
func NewTiming() *Timing {
	t := &Timing{}
	for m := range t.began {
		t.began[m] = make(chan struct{}, 1)
	}
	return t
}

// Begin tells that a moment begins; what it returns, that it is over.
func (t *Timing) Begin(m Moment) (over func()) {
	t.during[m].Add(1)
	t.last[m].Store(time.Now().UnixNano())
	select {
	case t.began[m] <- struct{}{}:
	default:
	}
	return func() { t.during[m].Add(-1) }
}

// Await waits until some time after the beginning of the next such moment, or
// for so long as none comes in patience.
func (t *Timing) Await(ctx context.Context, m Moment, after, patience time.Duration) {
	select {
	case <-t.began[m]: // one that is over
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

// waits is after how long a claim isn't being marked any more, but waits for a
// runner.
const waits = 10 * time.Millisecond

// Lasting returns which moments are going on.
func (t *Timing) Lasting() []Moment {
	var all []Moment
	for m := range Count {
		if t.during[m].Load() > 0 && (m != Claim || time.Now().UnixNano()-t.last[m].Load() < int64(waits)) {
			all = append(all, m)
		}
	}
	return all
}

// Pause waits, and returns early when ctx ends. What is shorter than a timer is
// late it spins away.
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
