package scheduler

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// maxPlans is the number of plans for one delivery before it is given back.
const maxPlans = 5

func (s *Scheduler) work(ctx context.Context) {
	for {
		d, ok := s.dequeue(ctx)
		if !ok {
			return
		}
		s.process(d)
		s.leave()
	}
}

// process brings d's job to what is wanted, and acks d. It plans on what it sees, and plans again if
// the plan was refused. After maxPlans it gives d back.
func (s *Scheduler) process(d delivery) {
	for range maxPlans {
		began := time.Now()
		p := s.plan(d)
		s.timings.observe(StepSchedule, began)
		began = time.Now()
		done, placed := s.apply(d, p)
		s.timings.observe(StepPlan, began)
		if !done {
			continue
		}
		began = time.Now()
		if placed != nil {
			s.config.Placed(*placed)
		}
		s.mu.Lock()
		s.ack(d)
		s.mu.Unlock()
		s.timings.observe(StepAck, began)
		return
	}
	s.log.Warn("an evaluation's plans were refused; it will be delivered again", zap.String("evaluation", string(d.ID)), zap.String("runner", string(d.RunnerID)))
	s.mu.Lock()
	defer s.unlock()
	s.nack(d)
}

// A plan is a worker's decision for a job: to place it, or to let it wait because of shortages. The
// zero plan means that nothing is left to do.
type plan struct {
	place bool
	short []runtime.Shortage
}

// plan decides what to do for d's job in the present room.
func (s *Scheduler) plan(d delivery) plan {
	s.mu.Lock()
	unplaced, r := d.job.unplaced(), s.roomFor(d.job, runtime.Priority(d.Priority))
	s.mu.Unlock()
	if !unplaced {
		return plan{}
	}
	short := r.shortages(d.job.Resources)
	return plan{short == nil, short}
}

// apply applies p. It returns false only if the present state refuses p. If another worker has d, it
// does nothing and returns true. placed is the new allocation, if there is one.
func (s *Scheduler) apply(d delivery, p plan) (done bool, placed *runtime.Allocation) {
	s.mu.Lock()
	defer s.unlock()
	e, j := d.evaluation, d.job
	switch {
	case !d.holds():
		return true, nil // another worker has it, or will get it
	case p.place && !(j.unplaced() && j.Resources.Fits(s.node.Capacity.Minus(s.node.Used))):
		// Room that is kept for others doesn't count here: the plan has respected it.
		s.counts.PlansRefused++
		return false, nil
	case p.place:
		a := *s.allocate(j, runtime.NewAllocationID(), e.ID)
		placed = &a
		s.counts.PlansApplied++
		s.counts.Placed++
	case p.short != nil && j.unplaced():
		s.wait(d, p.short)
		return true, nil
	}
	e.end(runtime.EvaluationComplete, "", time.Now())
	if j.blocked == e {
		s.unblock(j)
		s.wakeFitting()
	}
	s.hint(j.Environment)
	return true, placed
}

// wait acks d, and lets an evaluation wait for the room that d's job lacks: d's own if it has waited
// before, else a new one, which continues it. The caller holds mu.
func (s *Scheduler) wait(d delivery, short []runtime.Shortage) {
	e, j := d.evaluation, d.job
	if j.next != nil { // a newer one does its work
		s.cancel(e, j.next)
		s.ack(d)
		return
	}
	s.ack(d)
	waits := e
	if e.Status == runtime.EvaluationBlocked {
		s.counts.Reblocked++
		s.unblock(j)
	} else {
		s.counts.Blocked++
		waits = s.newEvaluation(j, runtime.TriggerNoRoom)
		waits.Status, waits.Priority = runtime.EvaluationBlocked, e.Priority
		waits.PreviousID, waits.DequeuedAt = e.ID, e.DequeuedAt
		e.end(runtime.EvaluationComplete, "", time.Now())
		e.NextID, e.Queued, waits.Queued = waits.ID, 1, 1
	}
	waits.Reason, waits.Shortages = describe(short), short
	s.hint(j.Environment)
	s.block(waits)
}
