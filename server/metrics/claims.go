package metrics

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/timing"
)

// claimFamilies are the metrics of pools and claims.
func claimFamilies() []family[activity.Stats] {
	pools := func(name, help string, value func(activity.PoolStats) float64) family[activity.Stats] {
		return gauges("pool_"+name, help, []string{"environment"}, func(s activity.Stats, emit emitter[float64]) {
			for _, p := range s.Pools {
				emit(value(p), string(p.EnvironmentID))
			}
		})
	}
	return []family[activity.Stats]{
		counters("claims_total", "Claims by claimRunner and run, by result: CLAIMED, CANCELLED (the caller left before the answer), or the error's code. A claim that is repeated with its idempotency key counts again; one that returns the holder's runner doesn't. The environment is empty if it doesn't exist. Alert on a share of NO_RUNNER_AVAILABLE: pools are too small, or runners don't start.", []string{"environment", "result"}, func(s activity.Stats, emit emitter[float64]) {
			for id, of := range s.Claims {
				for result, n := range of.Results {
					if n > 0 || result == activity.ClaimMade || result == string(runtime.CodeNoRunnerAvailable) {
						emit(float64(n), string(id), result)
					}
				}
			}
		}),
		histograms("claim_duration_seconds", "Duration of claims that got a runner, including the wait for it (waitFor).", []string{"environment"}, func(s activity.Stats, emit emitter[timing.Reading]) {
			for id, of := range s.Claims {
				if id != "" {
					emit(of.Took, string(id))
				}
			}
		}),
		gauges("pool_runners", "Runners of a pool, by state: STARTING, IDLE, CLAIMED (or being claimed) and STOPPING.", []string{"environment", "state"}, func(s activity.Stats, emit emitter[float64]) {
			for _, p := range s.Pools {
				emit(float64(p.Starting), string(p.EnvironmentID), string(runtime.RunnerStarting))
				emit(float64(p.Idle), string(p.EnvironmentID), string(runtime.RunnerIdle))
				emit(float64(p.Claimed), string(p.EnvironmentID), string(runtime.RunnerClaimed))
				emit(float64(p.Stopping), string(p.EnvironmentID), string(runtime.RunnerStopping))
			}
		}),
		pools("wanted_runners", "Idle runners that a pool should have: the environment's poolSize.", func(p activity.PoolStats) float64 { return float64(p.Size) }),
		pools("waiting_claims", "Claims that wait for a runner now.", func(p activity.PoolStats) float64 { return float64(p.Waiting) }),
		pools("alert", "1 while a pool has had too few idle runners for too long (--alert-threshold, --alert-timeout). Alert on it. The pool's reason, in the API, says what is wrong.", func(p activity.PoolStats) float64 {
			if p.Alert {
				return 1
			}
			return 0
		}),
	}
}
