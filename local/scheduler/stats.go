package scheduler

import (
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

// A Step is one step of a worker's work on an evaluation; each is timed.
type Step string

// The steps in their order. REFRESH and PLAN can repeat.
const (
	StepWait     Step = "WAIT" // for the state to contain the evaluation's job
	StepSchedule Step = "SCHEDULE"
	StepPlan     Step = "PLAN"    // from submission to the planner's answer
	StepRefresh  Step = "REFRESH" // after a plan that was refused
	StepUpdate   Step = "UPDATE"  // recording the evaluation's outcome
	StepAck      Step = "ACK"
)

// Steps returns all steps in their order.
func Steps() []Step {
	return []Step{StepWait, StepSchedule, StepPlan, StepRefresh, StepUpdate, StepAck}
}

// Stats is what a Scheduler has counted since New, and its current depths.
type Stats struct {
	Enqueued     int64 // evaluations enqueued
	Dequeued     int64 // deliveries made
	Acked        int64
	Nacked       int64 // timeouts included
	NackTimeouts int64
	Superseded   int64 // evaluations superseded by a newer one of their job
	Failed       int64 // evaluations that were delivered maxDeliveries times

	Blocked   int64
	Unblocked int64 // woken because there was room
	Reblocked int64 // woken, but the room was taken

	PlansApplied int64 // applied as a whole
	PlansPartial int64 // stops applied, placement refused
	PlansRefused int64
	Resubmitted  int64 // submissions repeated while the planner was disabled
	Placed       int64
	Stopped      int64

	Collected int64 // evaluations, allocations and jobs

	Depths  Depths
	Timings map[runtime.EvaluationType]map[Step]timing.Reading // of the steps that occurred
}

// Refreshes returns how often a worker had to plan again with a fresh snapshot.
func (s Stats) Refreshes() int64 { return s.PlansPartial + s.PlansRefused }

// Depths counts the evaluations that haven't ended, by where they are.
type Depths struct {
	Ready       map[runtime.EvaluationType]int // waiting for a worker
	Pending     int                            // until the outstanding one of the same job is acked or nacked
	Outstanding int                            // with a worker
	Delayed     int                            // to be delivered later
	Failed      int                            // delivered maxDeliveries times; their follow-ups are delayed
	Blocked     int                            // waiting for room, woken ones included
	Lacking     map[Dimension]int              // blocked ones, by each dimension that they lack
}

// stats is the live counters behind Stats.
type stats struct {
	enqueued, dequeued, acked, nacked, nackTimeouts, superseded, failed atomic.Int64
	blocked, unblocked, reblocked                                       atomic.Int64
	plansApplied, plansPartial, plansRefused, resubmitted               atomic.Int64
	placed, stopped, collected                                          atomic.Int64
	// The maps never change, so reading them needs no lock.
	timings map[runtime.EvaluationType]map[Step]*timing.Histogram
}

// newStats returns zero counters, and an empty histogram for each type and step.
func newStats() *stats {
	const us, ms = time.Microsecond, time.Millisecond
	s := &stats{timings: map[runtime.EvaluationType]map[Step]*timing.Histogram{}}
	for _, t := range Types() {
		s.timings[t] = map[Step]*timing.Histogram{}
		for _, step := range Steps() {
			s.timings[t][step] = timing.New(10*us, 50*us, 100*us, 500*us, ms, 5*ms, 50*ms, 500*ms, 5000*ms)
		}
	}
	return s
}

// observe records the duration of a step from began until now.
func (s *stats) observe(t runtime.EvaluationType, step Step, began time.Time) {
	s.timings[t][step].Add(time.Since(began))
}

// read returns the counters, without Depths.
func (s *stats) read() Stats {
	all := Stats{
		Enqueued:     s.enqueued.Load(),
		Dequeued:     s.dequeued.Load(),
		Acked:        s.acked.Load(),
		Nacked:       s.nacked.Load(),
		NackTimeouts: s.nackTimeouts.Load(),
		Superseded:   s.superseded.Load(),
		Failed:       s.failed.Load(),
		Blocked:      s.blocked.Load(),
		Unblocked:    s.unblocked.Load(),
		Reblocked:    s.reblocked.Load(),
		PlansApplied: s.plansApplied.Load(),
		PlansPartial: s.plansPartial.Load(),
		PlansRefused: s.plansRefused.Load(),
		Resubmitted:  s.resubmitted.Load(),
		Placed:       s.placed.Load(),
		Stopped:      s.stopped.Load(),
		Collected:    s.collected.Load(),
		Timings:      map[runtime.EvaluationType]map[Step]timing.Reading{},
	}
	for t, steps := range s.timings {
		all.Timings[t] = map[Step]timing.Reading{}
		for step, histogram := range steps {
			if read := histogram.Read(); read.Count() > 0 {
				all.Timings[t][step] = read
			}
		}
	}
	return all
}
