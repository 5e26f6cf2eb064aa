package metrics

import (
	"github.com/rockpool/rockpool/local"
)

// localFamilies are the metrics of the cluster on this machine.
func localFamilies() []family[local.Stats] {
	all := taskFamilies(func(s local.Stats) running { return running{s.Tasks, s.Leaked, s.Problems} })
	all = append(all,
		counter("task_forced_kills_total", "Kills after which the first process was still alive a second later, so that they were forced.", func(s local.Stats) int64 { return s.Tasks.ForcedKills }))
	return append(append(all, placementFamilies(localPlacement)...), schedulerFamilies()...)
}

// localPlacement converts the numbers of this machine's cluster.
func localPlacement(s local.Stats) placement {
	d := s.Scheduler.Depths
	p := placement{
		placed:      s.Scheduler.Placed,
		evaluations: map[string]int{"READY": d.Ready, "PENDING": d.Pending, "OUTSTANDING": d.Outstanding, "DELAYED": d.Delayed, "FAILED": d.Failed, "BLOCKED": d.Blocked},
		lacking:     map[string]int{},
		promised:    map[string]float64{},
	}
	for dimension, share := range s.Node.Promised() {
		p.lacking[string(dimension)] = d.Lacking[dimension]
		p.promised[string(dimension)] = share
	}
	return p
}
