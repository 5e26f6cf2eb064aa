package pool

import (
	"context"
	"sync/atomic"
	"time"
)

// A Place is where a claim that waits is in its pool's queue.
type Place struct {
	Position      int           // 1: it is served next, if nothing else comes; 0: it doesn't wait, or nobody knows yet
	EstimatedWait time.Duration // at the pace of the claims that waited recently; 0: there were none
}

// A Waiting follows one claim through the queue. Its methods are safe for concurrent use.
type Waiting struct {
	began    chan struct{}
	waits    atomic.Bool
	position atomic.Int64 // when places were looked up last
}

// NewWaiting returns what follows one claim, as its Claim.Waiting.
func NewWaiting() *Waiting { return &Waiting{began: make(chan struct{})} }

// Began is closed when the claim is left waiting. It never is where the claim is answered
// at once.
func (w *Waiting) Began() <-chan struct{} { return w.began }

func (w *Waiting) begin() {
	w.waits.Store(true)
	close(w.began)
}

func (w *Waiting) end() {
	w.waits.Store(false)
	w.position.Store(0)
}

// places is what the owner found out about all claims that wait.
type places struct {
	due  atomic.Int64 // when they are to be looked up again, in Unix nanoseconds
	turn atomic.Int64 // nanoseconds that one turn takes; 0: nobody knows
}

// placeFor is how long places are used, for each claim that waits: 0.2 s for 10,000. To
// look one up takes about a hundredth of that (BenchmarkPlaces).
const placeFor = 20 * time.Microsecond

// Place returns where a claim is. All places are looked up together, and only when one is
// asked for, so it may be a moment old. Of a claim that came within that moment it is
// unknown.
func (p *Pool) Place(ctx context.Context, w *Waiting) Place {
	if w.waits.Load() && time.Now().UnixNano() >= p.places.due.Load() {
		_, _ = ask(ctx, p, func(o *owner, reply func(struct{}, error)) { // an error: what was known holds
			o.place(time.Now())
			reply(struct{}{}, nil)
		})
	}
	position := w.position.Load()
	return Place{Position: int(position), EstimatedWait: time.Duration(position * p.places.turn.Load())}
}

// place looks up the places of all claims, unless it did a moment ago.
func (o *owner) place(now time.Time) {
	if now.UnixNano() < o.pool.places.due.Load() {
		return
	}
	position := int64(0)
	for w := range o.waiting.order() {
		position++
		if w.claim.Waiting != nil {
			w.claim.Waiting.position.Store(position)
		}
	}
	o.pool.places.turn.Store(int64(o.pace.turn(now)))
	o.pool.places.due.Store(now.Add(time.Duration(position) * placeFor).UnixNano())
}

// A pace is how long the turns of claims took while some waited: an average in which the
// latest pacedTurns count most.
type pace struct {
	mean  time.Duration
	turns int
	since time.Time // when the last one was served, or the first one began to wait; zero: none waits
}

const pacedTurns = 16

// wait notes how many claims wait now.
func (p *pace) wait(now time.Time, waiting int) {
	switch {
	case waiting == 0:
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = now
	}
}

// served notes that a claim that waited is served.
func (p *pace) served(now time.Time) {
	p.turns = min(p.turns+1, pacedTurns)
	p.mean += (now.Sub(p.since) - p.mean) / time.Duration(p.turns)
	p.since = now
}

// turn returns how long a turn takes; 0: nobody knows. One that takes longer than the
// others did counts before it ends.
func (p *pace) turn(now time.Time) time.Duration {
	mean := p.mean
	if open := now.Sub(p.since); p.turns > 0 && !p.since.IsZero() && open > mean {
		mean += (open - mean) / time.Duration(min(p.turns+1, pacedTurns))
	}
	return mean
}
