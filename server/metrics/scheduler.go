package metrics

import (
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

// schedulerFamilies are the metrics that only the scheduler of this machine has.
func schedulerFamilies() []family[local.Stats] {
	count := func(name, help string, value func(scheduler.Stats) int64) family[local.Stats] {
		return counter("scheduler_"+name, help, func(s local.Stats) int64 { return value(s.Scheduler) })
	}
	return []family[local.Stats]{
		count("enqueued_total", "Evaluations that were put into the queue; repeated ones count again.", func(s scheduler.Stats) int64 { return s.Enqueued }),
		count("dequeued_total", "Evaluations that were delivered to a worker; repeated ones count again.", func(s scheduler.Stats) int64 { return s.Dequeued }),
		count("acks_total", "Evaluations that a worker finished.", func(s scheduler.Stats) int64 { return s.Acked }),
		count("nacks_total", "Evaluations that were returned to the queue, after an error or a timeout.", func(s scheduler.Stats) int64 { return s.Nacked }),
		count("nack_timeouts_total", "Evaluations that were returned to the queue because their worker was silent for too long.", func(s scheduler.Stats) int64 { return s.NackTimeouts }),
		count("superseded_total", "Evaluations that a newer one of the same runner replaced.", func(s scheduler.Stats) int64 { return s.Superseded }),
		count("failed_total", "Evaluations that were given up after three deliveries. A later evaluation follows up on them.", func(s scheduler.Stats) int64 { return s.Failed }),
		count("blocked_total", "Evaluations that began to wait for capacity.", func(s scheduler.Stats) int64 { return s.Blocked }),
		count("unblocked_total", "Evaluations that were woken because capacity became free.", func(s scheduler.Stats) int64 { return s.Unblocked }),
		count("reblocked_total", "Evaluations that were woken, and had to wait again.", func(s scheduler.Stats) int64 { return s.Reblocked }),
		counters("scheduler_plans_total", "Plans, by result: APPLIED, REFUSED (another plan came first).", []string{"result"}, func(s local.Stats, emit emitter[float64]) {
			emit(float64(s.Scheduler.PlansApplied), "APPLIED")
			emit(float64(s.Scheduler.PlansRefused), "REFUSED")
		}),
		count("refreshes_total", "Plans that workers made again after one was REFUSED.", func(s scheduler.Stats) int64 { return s.PlansRefused }),
		count("stopped_total", "Runners whose allocation was revoked.", func(s scheduler.Stats) int64 { return s.Stopped }),
		count("collected_total", "Ended evaluations, allocations and jobs that were deleted.", func(s scheduler.Stats) int64 { return s.Collected }),
		gauges("scheduler_ready_evaluations", "READY evaluations, by type. Only those of type PLACE wait for a worker.", []string{"type"}, func(s local.Stats, emit emitter[float64]) {
			emit(float64(s.Scheduler.Depths.Ready), string(runtime.EvaluationPlace))
		}),
		histograms("scheduler_step_duration_seconds", "Duration of workers' steps, by the evaluation's type and by step: SCHEDULE, PLAN, ACK. Only steps that were carried out.", []string{"type", "step"}, func(s local.Stats, emit emitter[timing.Reading]) {
			for step, took := range s.Scheduler.Timings {
				emit(took, string(runtime.EvaluationPlace), string(step))
			}
		}),
	}
}
