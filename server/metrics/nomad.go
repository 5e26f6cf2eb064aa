package metrics

import (
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/nomad/outcome"
	"github.com/rockpool/rockpool/runtime/timing"
)

// nomadFamilies show the cluster on Nomad.
func nomadFamilies() []family[nomad.Stats] {
	all := taskFamilies(func(s nomad.Stats) running { return running{s.Tasks, s.Leaked, s.Problems} })
	all = append(all, placementFamilies(nomadPlacement)...)
	return append(all,
		counters("nomad_calls_total", "Calls of Nomad's API, each attempt, by what became of them.", []string{"call", "result"}, func(s nomad.Stats, emit emitter[float64]) {
			for call, of := range s.Calls.Calls {
				for result, n := range of.Results {
					emit(float64(n), string(call), string(result))
				}
			}
		}),
		histograms("nomad_call_duration_seconds", "How long calls of Nomad's API took until their answer began.", []string{"call"}, func(s nomad.Stats, emit emitter[timing.Reading]) {
			for call, of := range s.Calls.Calls {
				if of.Took.Count() > 0 {
					emit(of.Took, string(call))
				}
			}
		}),
		counter("nomad_call_retries_total", "Calls of Nomad's API that were made again, because Nomad didn't answer or couldn't yet.", func(s nomad.Stats) int64 { return s.Calls.Retries }),
		gauge("nomad_lock_held", "1 while this server owns what is Nomad's.", func(s nomad.Stats) float64 {
			if s.Lock.Held {
				return 1
			}
			return 0
		}),
		gauges("nomad_lock_age_seconds", "How long ago the lock was taken or renewed, where it is held.", nil, func(s nomad.Stats, emit emitter[float64]) {
			if s.Lock.Held {
				emit(s.Lock.Age.Seconds())
			}
		}),
		gauge("nomad_lock_ttl_seconds", "After how long a lock that isn't renewed is another server's.", func(s nomad.Stats) float64 { return s.LockLasts.Seconds() }),
		counter("nomad_lock_losses_total", "Locks that were held, and could not be renewed in time.", func(s nomad.Stats) int64 { return s.Lock.Losses }),
		gauge("nomad_bridges", "Bridges to runners, open or being opened.", func(s nomad.Stats) float64 { return float64(s.Bridges.Open) }),
		gauge("nomad_bridges_limit", "Bridges that there may be.", func(s nomad.Stats) float64 { return float64(s.Bridges.Budget) }),
		gauge("nomad_bridges_waiting", "Callers that wait for room for a bridge.", func(s nomad.Stats) float64 { return float64(s.Bridges.Waiting) }),
		counter("nomad_bridge_opens_total", "Bridges that were opened.", func(s nomad.Stats) int64 { return s.Bridges.Opens }),
		counter("nomad_bridge_failures_total", "Tries to open a bridge that failed, those at agents that don't answer yet included.", func(s nomad.Stats) int64 { return s.Bridges.Failures }),
		gauge("nomad_streams", "Streams to agents that are open.", func(s nomad.Stats) float64 { return float64(s.Bridges.OpenStreams) }),
		counter("nomad_streams_opened_total", "Streams to agents that were opened.", func(s nomad.Stats) int64 { return s.Bridges.Streams }),
	)
}

func nomadPlacement(s nomad.Stats) placement {
	p := placement{
		placed:      s.Placed,
		evaluations: map[string]int{"PENDING": s.Pending, "BLOCKED": s.Blocked},
		lacking:     map[string]int{},
		promised:    map[string]float64{},
	}
	for _, dimension := range outcome.Dimensions() {
		p.lacking[string(dimension)] = s.Lacking[dimension]
	}
	if c := s.Capacity; c.CPUMHz > 0 && c.MemoryMiB > 0 {
		p.promised[string(outcome.CPU)] = float64(c.CPUMHzUsed) / float64(c.CPUMHz)
		p.promised[string(outcome.Memory)] = float64(c.MemoryMiBUsed) / float64(c.MemoryMiB)
	}
	return p
}
