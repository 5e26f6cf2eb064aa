package scheduler

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

// types has all evaluation types.
var types = []runtime.EvaluationType{runtime.EvaluationPlace, runtime.EvaluationStop, runtime.EvaluationCollect}

// A Step is one step of the work on an evaluation; each is timed.
type Step string

// The steps in their order. SCHEDULE and PLAN repeat after a plan that was refused. STOP and COLLECT
// evaluations have only the last one.
const (
	StepSchedule Step = "SCHEDULE" // making a plan
	StepPlan     Step = "PLAN"     // applying it
	StepAck      Step = "ACK"      // passing the allocation on, and acknowledging the evaluation
)

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

	PlansApplied int64
	PlansRefused int64 // the state had changed, so the worker planned again
	Placed       int64
	Stopped      int64

	Collected int64 // evaluations, allocations and jobs

	Depths  Depths
	Timings map[runtime.EvaluationType]map[Step]timing.Reading // of the steps that occurred
}

// Depths counts the evaluations that haven't ended, by where they are.
type Depths struct {
	Ready       int                       // waiting for a worker
	Pending     int                       // until the outstanding one of the same job is acked or nacked
	Outstanding int                       // with a worker
	Delayed     int                       // to be delivered later
	Failed      int                       // delivered maxDeliveries times; their follow-ups are delayed
	Blocked     int                       // waiting for room, woken ones included
	Lacking     map[runtime.Dimension]int // blocked ones, by each dimension that they lack
}

// timings are the histograms behind Stats. The maps never change, so reading them needs no lock.
type timings map[runtime.EvaluationType]map[Step]*timing.Histogram

// newTimings returns an empty histogram for each type and step.
func newTimings() timings {
	const us, ms = time.Microsecond, time.Millisecond
	all := timings{}
	for _, t := range types {
		all[t] = map[Step]*timing.Histogram{}
		for _, step := range []Step{StepSchedule, StepPlan, StepAck} {
			all[t][step] = timing.New(10*us, 50*us, 100*us, 500*us, ms, 5*ms, 50*ms, 500*ms, 5000*ms)
		}
	}
	return all
}

// observe records the duration of a step from began until now.
func (t timings) observe(kind runtime.EvaluationType, step Step, began time.Time) {
	t[kind][step].Add(time.Since(began))
}

// read returns the histograms of the steps that occurred.
func (t timings) read() map[runtime.EvaluationType]map[Step]timing.Reading {
	all := map[runtime.EvaluationType]map[Step]timing.Reading{}
	for kind, steps := range t {
		all[kind] = map[Step]timing.Reading{}
		for step, histogram := range steps {
			if read := histogram.Read(); read.Count() > 0 {
				all[kind][step] = read
			}
		}
	}
	return all
}

// Stats returns the counters, and the current depths.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.counts
	all.Timings = s.timings.read()
	all.Depths = Depths{Ready: s.ready.Len(), Lacking: map[runtime.Dimension]int{}}
	d := &all.Depths
	for _, j := range s.jobs {
		if j.held != nil {
			d.Outstanding++
		}
		switch {
		case j.next == nil || j.next.ready:
		case j.held != nil:
			d.Pending++
		default:
			d.Delayed++
		}
		if j.failed {
			d.Failed++
		}
		if j.blocked != nil {
			d.Blocked++
			for _, s := range j.blocked.Shortages {
				d.Lacking[s.Dimension]++
			}
		}
	}
	return all
}
