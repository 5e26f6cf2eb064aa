package scheduler

import (
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

// A Step is a part of a worker's work on an evaluation.
type Step string

// The steps, in their order; REFRESH, and PLAN with it, may come again.
const (
	StepWait     Step = "WAIT" // for the state to have what the evaluation is about
	StepSchedule Step = "SCHEDULE"
	StepPlan     Step = "PLAN"    // submitted until answered
	StepRefresh  Step = "REFRESH" // after a plan that was refused
	StepUpdate   Step = "UPDATE"  // of the evaluations
	StepAck      Step = "ACK"
)

// Steps are all, in their order.
func Steps() []Step {
	return []Step{StepWait, StepSchedule, StepPlan, StepRefresh, StepUpdate, StepAck}
}

// Stats counts what a Scheduler has done since it was made, and says what it
// has to do now.
type Stats struct {
	Enqueued     int64 // deliveries asked for
	Dequeued     int64 // deliveries made
	Acked        int64
	Nacked       int64 // timeouts included
	NackTimeouts int64
	Superseded   int64 // evaluations that a newer one of their job made needless
	Failed       int64 // delivered too often

	Blocked   int64
	Unblocked int64 // woken: there was room
	Reblocked int64 // woken, but the room was gone

	PlansApplied int64 // wholly
	PlansPartial int64 // the stops, not the placement
	PlansRefused int64
	Resubmitted  int64 // while the planner was disabled
	Placed       int64
	Stopped      int64

	Collected int64 // evaluations, allocations and jobs

	Depths  Depths
	Timings map[runtime.EvaluationType]map[Step]timing.Reading // of steps that were taken
}

// Refreshes counts how often a worker had to go on with a fresh snapshot.
func (s Stats) Refreshes() int64 { return s.PlansPartial + s.PlansRefused }

// Depths count the evaluations that haven't ended, by where they are.
type Depths struct {
	Ready       map[runtime.EvaluationType]int // for a worker
	Pending     int                            // until an outstanding one of the same job is back
	Outstanding int                            // with a worker
	Delayed     int                            // to be delivered later
	Failed      int                            // delivered too often; their follow-ups are delayed
	Blocked     int                            // for want of room, those that are woken included
	Lacking     map[Dimension]int              // blocked ones, by each thing they lack
}

// stats is Stats while it counts.
type stats struct {
	enqueued, dequeued, acked, nacked, nackTimeouts, superseded, failed atomic.Int64
	blocked, unblocked, reblocked                                       atomic.Int64
	plansApplied, plansPartial, plansRefused, resubmitted               atomic.Int64
	placed, stopped, collected                                          atomic.Int64
	timings                                                             map[runtime.EvaluationType]map[Step]*timing.Histogram // never changed
}

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

// took counts a step that began at a time and ends now.
func (s *stats) took(t runtime.EvaluationType, step Step, began time.Time) {
	s.timings[t][step].Add(time.Since(began))
}

// read returns s without its Depths.
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
