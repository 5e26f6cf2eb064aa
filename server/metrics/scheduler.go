package metrics

import (
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime/timing"
)

// schedulerFamilies show what only the scheduler of this machine has.
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
		count("stopped_total", "Runners whose place was taken back.", func(s scheduler.Stats) int64 { return s.Stopped }),
		count("collected_total", "Ended evaluations, allocations and jobs that were forgotten.", func(s scheduler.Stats) int64 { return s.Collected }),
		gauges("scheduler_ready_evaluations", "Evaluations that wait for a worker, by type.", []string{"type"}, func(s local.Stats, emit emitter[float64]) {
			for _, t := range scheduler.Types() {
				emit(float64(s.Scheduler.Depths.Ready[t]), string(t))
			}
		}),
		histograms("scheduler_step_duration_seconds", "How long workers' steps took.", []string{"type", "step"}, func(s local.Stats, emit emitter[timing.Reading]) {
			for t, steps := range s.Scheduler.Timings {
				for step, took := range steps {
					emit(took, string(t), string(step))
				}
			}
		}),
	}
}
