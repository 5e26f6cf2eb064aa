package scheduler

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

// A Step is one step of a worker's work on an evaluation; each is timed.
type Step string

// The steps in their order. SCHEDULE and PLAN repeat after a plan that was refused.
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
	Timings map[Step]timing.Reading // of the steps that occurred
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

// timings are the histograms behind Stats. The map never changes, so reading it needs no lock.
type timings map[Step]*timing.Histogram

func newTimings() timings {
	const us, ms = time.Microsecond, time.Millisecond
	all := timings{}
	for _, step := range []Step{StepSchedule, StepPlan, StepAck} {
		all[step] = timing.New(10*us, 50*us, 100*us, 500*us, ms, 5*ms, 50*ms, 500*ms, 5000*ms)
	}
	return all
}

func (t timings) observe(step Step, began time.Time) { t[step].Add(time.Since(began)) }

// Stats returns the counters, and the current depths.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.counts
	all.Timings = map[Step]timing.Reading{}
	for step, histogram := range s.timings {
		if read := histogram.Read(); read.Count() > 0 {
			all.Timings[step] = read
		}
	}
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
