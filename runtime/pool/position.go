package pool

import (
	"context"
	"sync/atomic"
	"time"
)

// A QueuePosition is a waiting claim's position in its pool's queue.
type QueuePosition struct {
	Position      int           // 1: the next one; 0 means that it doesn't wait, or its position is unknown yet
	EstimatedWait time.Duration // at the pace of recent waiting claims; 0 means there were none
}

// A Queued tracks one claim in the queue. Its methods are safe for concurrent use.
type Queued struct {
	began    chan struct{} // closed by begin
	queued   atomic.Bool
	position atomic.Int64 // as last computed
}

// NewQueued returns a tracker for one claim; set it as Claim.Queued.
func NewQueued() *Queued { return &Queued{began: make(chan struct{})} }

// Began returns a channel that is closed when the claim begins to wait. It is never closed for a claim
// that is answered immediately.
func (w *Queued) Began() <-chan struct{} { return w.began }

// begin records that the claim waits. The loop calls it at most once.
func (w *Queued) begin() {
	w.queued.Store(true)
	close(w.began)
}

// end records that the claim no longer waits, even if it never did.
func (w *Queued) end() {
	w.queued.Store(false)
	w.position.Store(0)
}

// positions holds what the loop last computed about all waiting claims.
type positions struct {
	due  atomic.Pointer[time.Time] // when to compute them again; nil means now
	turn atomic.Int64              // nanoseconds of one turn; 0 means unknown
}

func (p *positions) valid(now time.Time) bool {
	due := p.due.Load()
	return due != nil && now.Before(*due)
}

// positionsFor is how long computed positions stay valid, per waiting claim: 0.2 s for 10,000. Computing one
// takes about a hundredth of that (BenchmarkPlaces).
const positionsFor = 20 * time.Microsecond

// QueuePosition returns a claim's position. All positions are computed together, on demand, and are reused for
// a moment, so the result may be slightly old. The position of a claim that arrived since is unknown.
func (p *Pool) QueuePosition(ctx context.Context, w *Queued) QueuePosition {
	if w.queued.Load() && !p.positions.valid(time.Now()) {
		_, _ = call(ctx, p, func(o *loop, reply func(struct{}, error)) { // on an error, the last positions stay
			o.computePositions(time.Now())
			reply(struct{}{}, nil)
		})
	}
	position := w.position.Load()
	return QueuePosition{Position: int(position), EstimatedWait: time.Duration(position * p.positions.turn.Load())}
}

func (o *loop) computePositions(now time.Time) {
	if o.pool.positions.valid(now) {
		return
	}
	position := int64(0)
	for w := range o.waiting.order() {
		position++
		if w.claim.Queued != nil {
			w.claim.Queued.position.Store(position)
		}
	}
	o.pool.positions.turn.Store(int64(o.pace.turn(now)))
	o.pool.positions.due.Store(new(now.Add(time.Duration(position) * positionsFor)))
}

// A pace is the mean time between turns while claims wait, in which the latest pacedTurns count most.
type pace struct {
	mean  time.Duration // between turns
	turns int
	since time.Time // last turn, or beginning of the wait; the zero time means no claim waits
}

// pacedTurns is how many turns the mean mostly consists of.
const pacedTurns = 16

func (p *pace) wait(now time.Time, waiting int) {
	switch {
	case waiting == 0:
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = now
	}
}

func (p *pace) served(now time.Time) {
	p.turns = min(p.turns+1, pacedTurns)
	p.mean += (now.Sub(p.since) - p.mean) / time.Duration(p.turns)
	p.since = now
}

// turn returns the time of one turn; 0 means unknown. A turn that already takes longer than the mean counts
// before it ends.
func (p *pace) turn(now time.Time) time.Duration {
	mean := p.mean
	if open := now.Sub(p.since); p.turns > 0 && !p.since.IsZero() && open > mean {
		mean += (open - mean) / time.Duration(min(p.turns+1, pacedTurns))
	}
	return mean
}
