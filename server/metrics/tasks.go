package metrics

import (
	"github.com/rockpool/rockpool/runtime/tasks"
	"github.com/rockpool/rockpool/runtime/timing"
)

// running is what every cluster shows of its runners' tasks.
type running struct {
	tasks.Stats
	leaked, problems int
}

// taskFamilies show runners' tasks: sandboxes of this machine, or tasks of Nomad's.
func taskFamilies[S any](of func(S) running) []family[S] {
	count := func(name, help string, value func(running) int64) family[S] {
		return counter("task_"+name, help, func(s S) int64 { return value(of(s)) })
	}
	return []family[S]{
		count("starts_total", "Tasks that were started, their agent answering.", func(s running) int64 { return s.Starts }),
		count("start_failures_total", "Attempts to start a task that failed.", func(s running) int64 { return s.StartFailures }),
		count("restarts_total", "Attempts to start a task after one that failed.", func(s running) int64 { return s.Restarts }),
		count("restores_total", "Tasks of the last server that were taken over.", func(s running) int64 { return s.Restores }),
		count("lost_total", "Tasks of the last server that weren't there any more, or whose agent didn't answer.", func(s running) int64 { return s.Lost }),
		count("exits_total", "Tasks that ended by themselves: their agent died.", func(s running) int64 { return s.Exits }),
		count("kills_total", "Tasks that were ended, because their runner was to go.", func(s running) int64 { return s.Kills }),
		count("removal_failures_total", "Tries to remove what there is of a task that failed.", func(s running) int64 { return s.RemovalFailures }),
		count("leaks_total", "Tasks of which something could not be removed.", func(s running) int64 { return s.Leaks }),
		histograms("runner_start_phase_duration_seconds", "How long each phase of runners' starts took.", []string{"phase"}, func(s S, emit emitter[timing.Reading]) {
			for phase, took := range of(s).Phases {
				emit(took, string(phase))
			}
		}),
		gauge("runners_leaked", "Runners of which something is left that could not be removed yet.", func(s S) float64 { return float64(of(s).leaked) }),
		gauge("cluster_problems", "Problems of the cluster that health tells.", func(s S) float64 { return float64(of(s).problems) }),
	}
}
