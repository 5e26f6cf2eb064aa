package metrics

import (
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/timing"
)

// running has the figures about runners' tasks that every cluster has.
type running struct {
	health.TaskStats
	leaked, problems int
}

// taskFamilies are the metrics of runners' tasks: sandboxes on this machine, or tasks of Nomad.
func taskFamilies[S any](of func(S) running) []family[S] {
	count := func(name, help string, value func(running) int64) family[S] {
		return counter("task_"+name, help, func(s S) int64 { return value(of(s)) })
	}
	return []family[S]{
		count("starts_total", "Tasks that were started and whose agent answered.", func(s running) int64 { return s.Starts }),
		count("start_failures_total", "Failed attempts to start a task. On Nomad also runners that will never get an allocation. Alert if there are many compared with the starts.", func(s running) int64 { return s.StartFailures }),
		count("restarts_total", "Further attempts to start a task, after a failed one. On Nomad they follow its restart and reschedule policies.", func(s running) int64 { return s.Restarts }),
		count("restores_total", "Tasks of the previous server that this one took over.", func(s running) int64 { return s.Restores }),
		count("lost_total", "Tasks of the previous server that were missing, or whose agent didn't answer. Alert on many: something ends runners while no server runs.", func(s running) int64 { return s.Lost }),
		count("exits_total", "Tasks that ended without a request: the agent died, or was killed because of memory.", func(s running) int64 { return s.Exits }),
		count("kills_total", "Tasks that were ended to remove their runner.", func(s running) int64 { return s.Kills }),
		count("removal_failures_total", "Failed attempts to remove a task; they are repeated. On one machine that means processes, mounts and groups. On Nomad the node didn't confirm the end within a minute.", func(s running) int64 { return s.RemovalFailures }),
		count("leaks_total", "Tasks that leaked; each counts once.", func(s running) int64 { return s.Leaks }),
		histograms("runner_start_phase_duration_seconds", "Duration of each phase of runners' starts.", []string{"phase"}, func(s S, emit emitter[timing.Reading]) {
			for phase, took := range of(s).Phases {
				emit(took, string(phase))
			}
		}),
		gauge("runners_leaked", "Runners that leak now. Alert on any: an operator must inspect the machine, or Nomad.", func(s S) float64 { return float64(of(s).leaked) }),
		gauge("cluster_problems", "Problems of the cluster that health reports, including leaks. Alert on any.", func(s S) float64 { return float64(of(s).problems) }),
	}
}
