package metrics

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/timing"
)

// claimFamilies show pools, and the claims on them.
func claimFamilies() []family[engine.Stats] {
	pools := func(name, help string, value func(engine.PoolStats) float64) family[engine.Stats] {
		return gauges("pool_"+name, help, []string{"environment"}, func(s engine.Stats, emit emitter[float64]) {
			for _, p := range s.Pools {
				emit(value(p), string(p.EnvironmentID))
			}
		})
	}
	return []family[engine.Stats]{
		counters("claims_total", "Claims of runners that were asked for, by what became of them. An empty environment: it doesn't exist.", []string{"environment", "result"}, func(s engine.Stats, emit emitter[float64]) {
			for id, of := range s.Claims {
				for result, n := range of.Results {
					if n > 0 || result == engine.ClaimMade || result == string(runtime.CodeNoRunnerAvailable) {
						emit(float64(n), string(id), result)
					}
				}
			}
		}),
		histograms("claim_duration_seconds", "How long claims took that got a runner, waiting for it included.", []string{"environment"}, func(s engine.Stats, emit emitter[timing.Reading]) {
			for id, of := range s.Claims {
				if id != "" {
					emit(of.Took, string(id))
				}
			}
		}),
		gauges("pool_runners", "Runners of a pool, by state.", []string{"environment", "state"}, func(s engine.Stats, emit emitter[float64]) {
			for _, p := range s.Pools {
				emit(float64(p.Starting), string(p.EnvironmentID), string(runtime.RunnerStarting))
				emit(float64(p.Idle), string(p.EnvironmentID), string(runtime.RunnerIdle))
				emit(float64(p.Claimed), string(p.EnvironmentID), string(runtime.RunnerClaimed))
				emit(float64(p.Stopping), string(p.EnvironmentID), string(runtime.RunnerStopping))
			}
		}),
		pools("wanted_runners", "Idle runners that a pool is to have.", func(p engine.PoolStats) float64 { return float64(p.Size) }),
		pools("waiting_claims", "Claims that wait for a runner.", func(p engine.PoolStats) float64 { return float64(p.Waiting) }),
		pools("alert", "1 while a pool has had too few idle runners for too long.", func(p engine.PoolStats) float64 {
			if p.Alert {
				return 1
			}
			return 0
		}),
	}
}
