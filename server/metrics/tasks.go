package metrics

import (
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime/timing"
)

// taskFamilies show the runners' sandboxes on this machine.
func taskFamilies() []family[local.Stats] {
	count := func(name, help string, value func(taskrunner.Stats) int64) family[local.Stats] {
		return counter("task_"+name, help, func(s local.Stats) int64 { return value(s.Tasks) })
	}
	return []family[local.Stats]{
		count("starts_total", "Sandboxes that were started, their agent answering.", func(s taskrunner.Stats) int64 { return s.Starts }),
		count("start_failures_total", "Attempts to start a sandbox that failed.", func(s taskrunner.Stats) int64 { return s.StartFailures }),
		count("restarts_total", "Attempts to start a sandbox after one that failed.", func(s taskrunner.Stats) int64 { return s.Restarts }),
		count("restores_total", "Sandboxes of the last server that were taken over.", func(s taskrunner.Stats) int64 { return s.Restores }),
		count("lost_total", "Sandboxes of the last server that weren't there any more, or whose agent didn't answer.", func(s taskrunner.Stats) int64 { return s.Lost }),
		count("exits_total", "Sandboxes that ended by themselves: their agent died.", func(s taskrunner.Stats) int64 { return s.Exits }),
		count("kills_total", "Sandboxes that were killed, because their runner was to go.", func(s taskrunner.Stats) int64 { return s.Kills }),
		count("forced_kills_total", "Kills that took too long, and were forced.", func(s taskrunner.Stats) int64 { return s.ForcedKills }),
		count("removal_failures_total", "Tries to remove what there is of a sandbox that failed.", func(s taskrunner.Stats) int64 { return s.RemovalFailures }),
		count("leaks_total", "Sandboxes of which something could not be removed, after all tries.", func(s taskrunner.Stats) int64 { return s.Leaks }),
		histograms("runner_start_phase_duration_seconds", "How long the phases of runners' starts took that were passed.", []string{"phase"}, func(s local.Stats, emit emitter[timing.Reading]) {
			emit(s.Placing, "PLACE")
			for _, phase := range taskrunner.StartPhases() {
				emit(s.Tasks.Phases[phase], string(phase))
			}
		}),
		gauge("runners_leaked", "Runners of which something is left that could not be removed yet.", func(s local.Stats) float64 { return float64(s.Leaked) }),
		gauge("cluster_problems", "Problems of the cluster that health tells.", func(s local.Stats) float64 { return float64(s.Problems) }),
	}
}
