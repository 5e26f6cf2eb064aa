package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Errors of submit.
var (
	errNoPlanning = errors.New("the planner is disabled: runners are being restored")
	errNoResult   = errors.New("the planner ended before it answered")
)

// planner applies plans one after the other, so that no two take the same room. Plans that wait
// concurrently share one write; a refused plan is answered before the commit, and its worker waits
// for the index. Its methods are safe for concurrent use.
type planner struct {
	state *state
	holds func(delivery) bool
	stats *stats
	plans chan submission // buffered: workers can submit while a batch is applied
	ended chan struct{}   // closed by run when it returns

	mu      sync.Mutex // guards the fields below
	enabled bool
	opened  chan struct{} // closed by enable
}

// A submission is a plan that waits for the planner.
type submission struct {
	plan
	answer chan answered // capacity 1: run never blocks on it
}

// answered is the planner's answer to a submission.
type answered struct {
	planned
	err error
}

// maxBatch bounds the plans of one write: the first plan of a batch waits for the last.
const maxBatch = 16

// newPlanner returns a disabled planner. holds reports whether a worker still holds a delivery.
func newPlanner(state *state, holds func(delivery) bool, stats *stats) *planner {
	return &planner{
		state:  state,
		holds:  holds,
		stats:  stats,
		plans:  make(chan submission, maxBatch),
		ended:  make(chan struct{}),
		opened: make(chan struct{}),
	}
}

// enable lets plans be applied; it is never disabled again.
func (p *planner) enable() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.enabled {
		p.enabled = true
		close(p.opened)
	}
}

func (p *planner) isEnabled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.enabled
}

// submit has a plan applied and returns the result. Errors: errNoPlanning means that runners are
// being restored. errNotHeld means that the evaluation was delivered to another worker meanwhile.
// After errNoResult the planner has ended, so it is unknown whether the plan was applied; the
// evaluation is planned again.
func (p *planner) submit(ctx context.Context, made plan) (planned, error) {
	if !p.isEnabled() {
		return planned{}, errNoPlanning
	}
	s := submission{plan: made, answer: make(chan answered, 1)}
	select {
	case p.plans <- s:
	case <-p.ended:
		return planned{}, errNoResult
	case <-ctx.Done():
		return planned{}, context.Cause(ctx)
	}
	select {
	case a := <-s.answer:
		return a.planned, a.err
	case <-p.ended:
		return planned{}, errNoResult
	case <-ctx.Done():
		return planned{}, context.Cause(ctx)
	}
}

// run applies plans until ctx ends. It is called once.
func (p *planner) run(ctx context.Context) {
	defer close(p.ended)
	for {
		select {
		case first := <-p.plans:
			p.apply(p.gather(first))
		case <-ctx.Done():
			return
		}
	}
}

// gather adds the waiting plans to first, up to maxBatch, in the order of priority. It doesn't wait
// for more.
func (p *planner) gather(first submission) []submission {
	batch := []submission{first}
	for len(batch) < maxBatch {
		select {
		case s := <-p.plans:
			batch = append(batch, s)
			continue
		default:
		}
		break
	}
	slices.SortStableFunc(batch, func(a, b submission) int { return int(b.delivery.Priority - a.delivery.Priority) })
	return batch
}

// apply applies a batch in one write. Refused plans are answered within the write, applied ones
// after its commit.
func (p *planner) apply(batch []submission) {
	committed := make(map[chan answered]answered, len(batch))
	p.state.write(func(w *write) {
		for _, s := range batch {
			// The broker may have delivered the evaluation again: only its last holder's plan may
			// be applied.
			if !p.holds(s.delivery) {
				s.answer <- answered{err: errNotHeld}
				continue
			}
			result := s.apply(w)
			p.count(s.plan, result)
			if result.refresh != 0 {
				s.answer <- answered{planned: result}
			} else {
				committed[s.answer] = answered{planned: result}
			}
		}
	})
	for answer, a := range committed {
		answer <- a
	}
}

// count counts a plan's result.
func (p *planner) count(made plan, result planned) {
	switch {
	case result.refresh == 0:
		p.stats.plansApplied.Add(1)
	case len(made.stop) > 0:
		p.stats.plansPartial.Add(1)
	default:
		p.stats.plansRefused.Add(1)
	}
	if result.placed {
		p.stats.placed.Add(1)
	}
	p.stats.stopped.Add(int64(len(made.stop)))
}
