package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// Bounds of a worker's waits and tries.
const (
	dequeueWithin = 10 * time.Second // a dequeue's longest wait; then the worker starts over
	reachWithin   = 5 * time.Second  // longest wait for the state to reach an evaluation's index
	quietFor      = 10 * time.Second // after the start, errors aren't logged: the broker may not be enabled yet
	maxPlans      = 5                // plans for one delivery before it is given back
)

// Pauses of a worker after an error: they start at a base and grow by a factor up to a limit.
const (
	fastBase  = 20 * time.Millisecond
	fastLimit = time.Second
	slowBase  = 500 * time.Millisecond
	slowLimit = 10 * time.Second
	growth    = 4
)

// pause returns after d, when early is closed, or when ctx ends.
func pause(ctx context.Context, d time.Duration, early <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
	}
}

// errConflicts is the error of a delivery whose plans were refused maxPlans times.
var errConflicts = fmt.Errorf("%d plans in a row were refused", maxPlans)

// worker dequeues evaluations and processes them, one at a time.
type worker struct {
	s     *Scheduler
	types []runtime.EvaluationType
	gate  *gate // nil: never parked

	dequeues, errors, resubmits backoff.Backoff
}

// newWorker returns a worker for evaluations of these types.
func (s *Scheduler) newWorker(gate *gate, types ...runtime.EvaluationType) *worker {
	return &worker{
		s:         s,
		types:     types,
		gate:      gate,
		dequeues:  backoff.Backoff{First: fastBase, Last: slowLimit, Factor: growth},
		errors:    backoff.Backoff{First: fastBase, Last: fastLimit, Factor: growth},
		resubmits: backoff.Backoff{First: slowBase, Last: slowLimit, Factor: growth},
	}
}

// run works until ctx ends. A delivery that it holds then is given back.
func (w *worker) run(ctx context.Context) {
	started := time.Now()
	for ctx.Err() == nil {
		d, err := w.next(ctx)
		switch {
		case ctx.Err() != nil:
			if d != nil { // delivered in the same moment
				_ = w.s.broker.nack(*d)
			}
		case err != nil:
			if time.Since(started) > quietFor {
				w.s.log.Warn("a scheduling worker gets no evaluations; it retries", zap.Error(err))
			}
			pause(ctx, w.dequeues.Next(), w.s.broker.whenEnabled())
		case d != nil:
			w.dequeues.Reset()
			w.handle(ctx, *d)
		}
	}
}

// next waits until the gate is open, then for an evaluation; nil: none came, call it again.
func (w *worker) next(ctx context.Context) (*delivery, error) {
	var shut <-chan struct{}
	if w.gate != nil {
		var err error
		if shut, err = w.gate.wait(ctx); err != nil {
			return nil, err
		}
	}
	return w.s.broker.dequeue(ctx, shut, dequeueWithin, w.types...)
}

// handle processes d, then acks or nacks it. If the broker no longer knows the delivery, ack and
// nack do nothing: the evaluation is delivered again anyway.
func (w *worker) handle(ctx context.Context, d delivery) {
	if w.gate != nil {
		// The gate has shut since wait returned. The evaluation wasn't tried, so the delivery
		// doesn't count.
		if !w.gate.enter() {
			w.s.broker.putBack(d)
			return
		}
		defer w.gate.leave()
	}
	// The evaluation may be a row of the state, which never changes in place: this changes a copy.
	taken := *d.Evaluation
	taken.DequeuedAt = time.Now()
	d.Evaluation = &taken
	err := w.process(ctx, d)
	if err == nil {
		began := time.Now()
		_ = w.s.broker.ack(d)
		w.s.stats.observe(d.Type, StepAck, began)
		w.errors.Reset()
		return
	}
	_ = w.s.broker.nack(d)
	if ctx.Err() == nil {
		w.s.log.Warn("an evaluation couldn't be processed and will be delivered again",
			zap.String("evaluation", string(d.ID)), zap.String("runner", string(d.Job)), zap.Error(err))
		pause(ctx, w.errors.Next(), nil)
	}
}

// process brings d's job to what is wanted: it plans on a snapshot, submits, and plans again with a
// fresh snapshot if the plan was refused.
func (w *worker) process(ctx context.Context, d delivery) error {
	snap, err := w.reach(ctx, d, d.ModifyIndex, StepWait)
	if err != nil {
		return err
	}
	if d.Type == runtime.EvaluationCollect {
		return w.s.collect(d, snap)
	}
	for range maxPlans {
		began := time.Now()
		made, short := reconcile(snap.job(d.Job), snap.allocations(d.Job), w.s.roomFor(snap, d.Evaluation))
		w.s.stats.observe(d.Type, StepSchedule, began)
		d.SnapshotIndex = snap.index
		// With shortages, the evaluation doesn't end with the plan: finish lets it wait for room.
		made.delivery, made.ends = d, short == nil
		if made.empty() {
			return w.s.finish(d, short)
		}
		result, err := w.submit(ctx, made)
		if err != nil {
			return fmt.Errorf("submit the plan: %w", err)
		}
		if result.refresh == 0 {
			return w.s.finish(d, short)
		}
		if snap, err = w.reach(ctx, d, result.refresh, StepRefresh); err != nil {
			return err
		}
	}
	return errConflicts
}

// roomFor returns the room that an evaluation's job may use.
func (s *Scheduler) roomFor(snap Snapshot, e *Evaluation) room {
	node := snap.Node()
	return room{capacity: node.Capacity, used: node.Used, kept: s.blocked.kept(e.Job, e.Priority, node.Capacity)}
}

// reach waits until the state has reached index, at most reachWithin.
func (w *worker) reach(ctx context.Context, d delivery, index uint64, step Step) (Snapshot, error) {
	began := time.Now()
	defer func() { w.s.stats.observe(d.Type, step, began) }()
	if snap := w.s.state.snapshot(); snap.index >= index {
		return snap, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, reachWithin, fmt.Errorf("the state didn't reach index %d within %v", index, reachWithin))
	defer cancel()
	return w.s.state.reach(ctx, index)
}

// submit submits a plan; while the planner is disabled, it retries.
func (w *worker) submit(ctx context.Context, made plan) (planned, error) {
	began := time.Now()
	defer func() { w.s.stats.observe(made.delivery.Type, StepPlan, began) }()
	for {
		result, err := w.s.planner.submit(ctx, made)
		if !errors.Is(err, errNoPlanning) || ctx.Err() != nil || !w.s.broker.holds(made.delivery) {
			w.resubmits.Reset()
			return result, err
		}
		w.s.stats.resubmitted.Add(1)
		pause(ctx, w.resubmits.Next(), w.s.planner.opened)
	}
}
