package metrics

import (
	"strings"

	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime/timing"
)

// schedulerFamilies show the scheduler of this machine.
func schedulerFamilies() []family[local.Stats] {
	count := func(name, help string, value func(scheduler.Stats) int64) family[local.Stats] {
		return counter("scheduler_"+name, help, func(s local.Stats) int64 { return value(s.Scheduler) })
	}
	return []family[local.Stats]{
		count("enqueued_total", "Deliveries of evaluations that the broker was asked for.", func(s scheduler.Stats) int64 { return s.Enqueued }),
		count("dequeued_total", "Deliveries of evaluations to workers.", func(s scheduler.Stats) int64 { return s.Dequeued }),
		count("acks_total", "Evaluations that workers finished.", func(s scheduler.Stats) int64 { return s.Acked }),
		count("nacks_total", "Evaluations that were given back to be delivered again, timeouts included.", func(s scheduler.Stats) int64 { return s.Nacked }),
		count("nack_timeouts_total", "Evaluations that were taken back from a worker that was silent for too long.", func(s scheduler.Stats) int64 { return s.NackTimeouts }),
		count("superseded_total", "Evaluations that a newer one of their runner made needless.", func(s scheduler.Stats) int64 { return s.Superseded }),
		count("failed_total", "Evaluations that were given up after too many deliveries.", func(s scheduler.Stats) int64 { return s.Failed }),
		count("blocked_total", "Evaluations that began to wait for room.", func(s scheduler.Stats) int64 { return s.Blocked }),
		count("unblocked_total", "Evaluations that were woken because there was room.", func(s scheduler.Stats) int64 { return s.Unblocked }),
		count("reblocked_total", "Evaluations that were woken, but found the room gone.", func(s scheduler.Stats) int64 { return s.Reblocked }),
		counters("scheduler_plans_total", "Plans, by what became of them.", []string{"result"}, func(s local.Stats, emit emitter[float64]) {
			emit(float64(s.Scheduler.PlansApplied), "APPLIED")
			emit(float64(s.Scheduler.PlansPartial), "PARTIAL")
			emit(float64(s.Scheduler.PlansRefused), "REFUSED")
		}),
		count("refreshes_total", "Times that a worker had to go on with a fresh snapshot, because another one's plan came first.", scheduler.Stats.Refreshes),
		count("resubmitted_total", "Plans that were submitted again because no plans were taken just then.", func(s scheduler.Stats) int64 { return s.Resubmitted }),
		count("placed_total", "Runners that got their place.", func(s scheduler.Stats) int64 { return s.Placed }),
		count("stopped_total", "Runners whose place was taken back.", func(s scheduler.Stats) int64 { return s.Stopped }),
		count("collected_total", "Ended evaluations, allocations and jobs that were forgotten.", func(s scheduler.Stats) int64 { return s.Collected }),
		gauges("scheduler_evaluations", "Evaluations that haven't ended, by where they are.", []string{"state"}, func(s local.Stats, emit emitter[float64]) {
			d := s.Scheduler.Depths
			ready := 0
			for _, n := range d.Ready {
				ready += n
			}
			emit(float64(ready), "READY")
			emit(float64(d.Pending), "PENDING")
			emit(float64(d.Outstanding), "OUTSTANDING")
			emit(float64(d.Delayed), "DELAYED")
			emit(float64(d.Failed), "FAILED")
			emit(float64(d.Blocked), "BLOCKED")
		}),
		gauges("scheduler_ready_evaluations", "Evaluations that wait for a worker, by type.", []string{"type"}, func(s local.Stats, emit emitter[float64]) {
			for _, t := range scheduler.Types() {
				emit(float64(s.Scheduler.Depths.Ready[t]), string(t))
			}
		}),
		gauges("scheduler_blocked_evaluations", "Evaluations that wait for room, by what they lack; one that lacks two things counts twice.", []string{"dimension"}, func(s local.Stats, emit emitter[float64]) {
			for _, d := range scheduler.Dimensions() {
				emit(float64(s.Scheduler.Depths.Lacking[d]), strings.ToUpper(string(d)))
			}
		}),
		histograms("scheduler_step_duration_seconds", "How long workers' steps took.", []string{"type", "step"}, func(s local.Stats, emit emitter[timing.Reading]) {
			for t, steps := range s.Scheduler.Timings {
				for step, took := range steps {
					emit(took, string(t), string(step))
				}
			}
		}),
		gauges("scheduler_promised_ratio", "What runners with a place were promised, as a share of all that can be promised.", []string{"dimension"}, func(s local.Stats, emit emitter[float64]) {
			for d, share := range s.Node.Promised() {
				emit(share, strings.ToUpper(string(d)))
			}
		}),
	}
}
