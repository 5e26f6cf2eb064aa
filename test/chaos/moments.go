package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// A moment is something during which a server can be killed on purpose.
type moment int

const (
	anyMoment moment = iota
	atClaim
	atStart
	atUpload
	atRelease
	atChange // of an environment, which makes and removes many runners
	atMaking // of a sandbox: seen from outside, not told by a client
	moments
)

func (m moment) String() string {
	return [...]string{"at any time", "during a claim", "during a start", "during an upload", "during a release", "during a change", "while a sandbox was made"}[m]
}

// A timing tells when moments begin, and which last. Its methods may be called
// at once.
type timing struct {
	began  [moments]chan struct{} // capacity 1
	during [moments]atomic.Int64
	last   [moments]atomic.Int64 // when one began, in nanoseconds since 1970
}

func newTiming() *timing {
	t := &timing{}
	for m := range t.began {
		t.began[m] = make(chan struct{}, 1)
	}
	return t
}

// begin tells that a moment begins; what it returns, that it is over.
func (t *timing) begin(m moment) (over func()) {
	t.during[m].Add(1)
	t.last[m].Store(time.Now().UnixNano())
	select {
	case t.began[m] <- struct{}{}:
	default:
	}
	return func() { t.during[m].Add(-1) }
}

// await waits until some time after the beginning of the next such moment, or
// for so long as none comes in patience.
func (t *timing) await(ctx context.Context, m moment, after, patience time.Duration) {
	select {
	case <-t.began[m]: // one that is over
	default:
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	if m != anyMoment {
		select {
		case <-t.began[m]:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	pause(ctx, after)
}

// waits is after how long a claim isn't being marked any more, but waits for a
// runner.
const waits = 10 * time.Millisecond

// lasting returns which moments are going on.
func (t *timing) lasting() []moment {
	var all []moment
	for m := range moments {
		if t.during[m].Load() > 0 && (m != atClaim || time.Now().UnixNano()-t.last[m].Load() < int64(waits)) {
			all = append(all, m)
		}
	}
	return all
}

// pause waits, and returns early when ctx ends. What is shorter than a timer is
// late it spins away.
func pause(ctx context.Context, d time.Duration) {
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
