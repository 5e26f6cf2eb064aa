package metrics

import (
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/runtime/timing"
)

// nomadFamilies are the metrics of the cluster on Nomad.
func nomadFamilies() []family[nomad.Stats] {
	all := taskFamilies(func(s nomad.Stats) running { return running{s.Tasks, s.Leaked, s.Problems} })
	all = append(all, placementFamilies(nomadPlacement)...)
	return append(all,
		counters("nomad_calls_total", "Attempts to call Nomad's API, by result. Alert on a share of results other than DONE.", []string{"call", "result"}, func(s nomad.Stats, emit emitter[float64]) {
			for call, of := range s.Calls.Calls {
				for result, n := range of.Results {
					emit(float64(n), string(call), string(result))
				}
			}
		}),
		histograms("nomad_call_duration_seconds", "Time until the answer of a call began, without the wait for one of the --nomad-calls. Only calls that were made.", []string{"call"}, func(s nomad.Stats, emit emitter[timing.Reading]) {
			for call, of := range s.Calls.Calls {
				if of.Took.Count() > 0 {
					emit(of.Took, string(call))
				}
			}
		}),
		counter("nomad_call_retries_total", "Calls that were repeated, because Nomad didn't answer or couldn't serve them yet.", func(s nomad.Stats) int64 { return s.Calls.Retries }),
		gauge("nomad_lock_held", "1 while this server owns everything under --nomad-prefix; 0 on a standby.", func(s nomad.Stats) float64 {
			if s.Lock.Held {
				return 1
			}
			return 0
		}),
		gauges("nomad_lock_age_seconds", "Time since the lock was acquired or renewed. Missing if this server doesn't hold it. Alert at half of rockpool_nomad_lock_ttl_seconds: the lock is renewed five times in that time.", nil, func(s nomad.Stats, emit emitter[float64]) {
			if s.Lock.Held {
				emit(s.Lock.Age.Seconds())
			}
		}),
		gauge("nomad_lock_ttl_seconds", "The setting --nomad-lock-ttl. At this age another server may take over, and this one ends.", func(s nomad.Stats) float64 { return s.LockLasts.Seconds() }),
		counter("nomad_lock_losses_total", "Locks that couldn't be renewed in time. The server ends then, so few scrapes see it.", func(s nomad.Stats) int64 { return s.Lock.Losses }),
		gauge("nomad_bridges", "Bridges to agents, open or being opened. Each is a connection to Nomad.", func(s nomad.Stats) float64 { return float64(s.Bridges.Open) }),
		gauge("nomad_bridges_limit", "Largest number of bridges: --nomad-bridges.", func(s nomad.Stats) float64 { return float64(s.Bridges.Budget) }),
		gauge("nomad_bridges_waiting", "Starting runners and executions that wait for a free bridge. Alert if it stays above 0.", func(s nomad.Stats) float64 { return float64(s.Bridges.Waiting) }),
		counter("nomad_bridge_opens_total", "Bridges that were opened.", func(s nomad.Stats) int64 { return s.Bridges.Opens }),
		counter("nomad_bridge_failures_total", "Failed attempts to open a bridge. A starting runner is tried until its agent answers, so a few for each start are normal.", func(s nomad.Stats) int64 { return s.Bridges.Failures }),
		gauge("nomad_streams", "Open streams to agents, for executions and files.", func(s nomad.Stats) float64 { return float64(s.Bridges.OpenStreams) }),
		counter("nomad_streams_opened_total", "Streams to agents that were opened.", func(s nomad.Stats) int64 { return s.Bridges.Streams }),
	)
}

// nomadPlacement converts the numbers of Nomad's cluster. Without a known capacity, nothing is
// promised.
func nomadPlacement(s nomad.Stats) placement {
	p := placement{
		placed:      s.Placed,
		evaluations: map[string]int{"PENDING": s.Pending, "BLOCKED": s.Blocked},
		lacking:     map[string]int{},
		promised:    map[string]float64{},
	}
	for _, dimension := range listing.Dimensions() {
		p.lacking[string(dimension)] = s.Lacking[dimension]
	}
	if c := s.Capacity; c.CPUMHz > 0 && c.MemoryMiB > 0 {
		p.promised[string(listing.CPU)] = float64(c.CPUMHzUsed) / float64(c.CPUMHz)
		p.promised[string(listing.Memory)] = float64(c.MemoryMiBUsed) / float64(c.MemoryMiB)
	}
	return p
}
