package metrics

import (
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/timing"
)

// bounded is shown where what is kept is bounded: nobody counts it elsewhere.
func bounded(name, help string, value func(engine.Stats) int64) family[engine.Stats] {
	return gauges(name, help, nil, func(s engine.Stats, emit emitter[float64]) {
		if s.KeepLimit > 0 {
			emit(float64(value(s)))
		}
	})
}

// executionFamilies show executions, their output, and who watches.
func executionFamilies() []family[engine.Stats] {
	return []family[engine.Stats]{
		counter("executions_started_total", "Executions that were recorded, to be started.", func(s engine.Stats) int64 { return s.Started }),
		counter("executions_resumed_total", "Executions of the last server that this one went on with.", func(s engine.Stats) int64 { return s.Resumed }),
		counters("executions_finished_total", "Executions that ended, by outcome.", []string{"outcome"}, func(s engine.Stats, emit emitter[float64]) {
			for outcome, n := range s.Finished {
				emit(float64(n), string(outcome))
			}
		}),
		gauge("executions_unfinished", "Executions that haven't ended.", func(s engine.Stats) float64 { return float64(s.Unfinished) }),
		histograms("execution_start_duration_seconds", "How long executions took from their record to their command's start.", nil, func(s engine.Stats, emit emitter[timing.Reading]) {
			emit(s.Starting)
		}),
		counter("executions_collected_total", "Finished executions that were forgotten, with their output.", func(s engine.Stats) int64 { return s.Collected }),
		bounded("executions_kept_bytes", "What executions and their output take on the disk, where that is bounded.", func(s engine.Stats) int64 { return s.Kept }),
		bounded("executions_kept_limit_bytes", "What they may take, where that is bounded.", func(s engine.Stats) int64 { return s.KeepLimit }),
		counter("output_bytes_total", "What programs printed, and was written to their logs.", func(s engine.Stats) int64 { return s.Output }),
		counter("output_lost_bytes_total", "What programs printed, and no log had room for.", func(s engine.Stats) int64 { return s.OutputLost }),
		gauges("watchers", "Subscriptions now, by what they watch.", []string{"kind"}, func(s engine.Stats, emit emitter[float64]) {
			for kind, n := range s.Watchers {
				emit(float64(n), string(kind))
			}
		}),
		gauge("restore_skipped", "What of the last server could not be restored, as health tells.", func(s engine.Stats) float64 { return float64(s.Skipped) }),
	}
}
