package metrics

import (
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/timing"
)

// bounded is a gauge that exists only with a limit on kept bytes: without a limit they aren't counted.
func bounded(name, help string, value func(activity.Stats) int64) family[activity.Stats] {
	return gauges(name, help, nil, func(s activity.Stats, emit emitter[float64]) {
		if s.KeepLimit > 0 {
			emit(float64(value(s)))
		}
	})
}

// executionFamilies are the metrics of executions, output and subscriptions.
func executionFamilies() []family[activity.Stats] {
	return []family[activity.Stats]{
		counter("executions_started_total", "Executions that were recorded, to start immediately.", func(s activity.Stats) int64 { return s.Started }),
		counter("executions_resumed_total", "Unfinished executions of the previous server that this one continued.", func(s activity.Stats) int64 { return s.Resumed }),
		counters("executions_finished_total", "Executions that ended, by outcome. Alert on FAILED (Rockpool's fault) and LOST (the end is unknown). RUNNER_GONE is normal if clients release busy runners.", []string{"outcome"}, func(s activity.Stats, emit emitter[float64]) {
			for outcome, n := range s.Finished {
				emit(float64(n), string(outcome))
			}
		}),
		gauge("executions_unfinished", "Executions that haven't ended: started and resumed ones, minus finished ones.", func(s activity.Stats) float64 { return float64(s.Unfinished) }),
		histograms("execution_start_duration_seconds", "Time from an execution's record to the start of its command. Alert if its median rises: the machine is too busy.", nil, func(s activity.Stats, emit emitter[timing.Reading]) {
			emit(s.Starting)
		}),
		counter("executions_collected_total", "Finished executions that were deleted with their output, because of their age (--keep-executions) or for space (--keep-bytes).", func(s activity.Stats) int64 { return s.Collected }),
		bounded("executions_kept_bytes", "Disk space that executions and their output use. Missing with --keep-bytes 0.", func(s activity.Stats) int64 { return s.Kept }),
		bounded("executions_kept_limit_bytes", "Disk space that executions and their output may use: --keep-bytes. When it is reached, the oldest are deleted before --keep-executions is over. Missing with --keep-bytes 0.", func(s activity.Stats) int64 { return s.KeepLimit }),
		counter("output_bytes_total", "Bytes that programs printed and that are in their output logs.", func(s activity.Stats) int64 { return s.Output }),
		counter("output_lost_bytes_total", "Bytes that programs printed and that couldn't be stored. Alert on any: running executions fill the disk or --keep-bytes, or the disk fails. Health (output) says which.", func(s activity.Stats) int64 { return s.OutputLost }),
		gauges("watchers", "Subscriptions now, by kind: EXECUTION, RUNNERS, POOLS, POOL_ALERTS, TICKETS, FILES.", []string{"kind"}, func(s activity.Stats, emit emitter[float64]) {
			for kind, n := range s.Watchers {
				emit(float64(n), string(kind))
			}
		}),
		gauge("restore_skipped", "Environments, runners and executions of the previous server that couldn't be restored. Health names them. Alert on any.", func(s activity.Stats) float64 { return float64(s.Skipped) }),
	}
}
