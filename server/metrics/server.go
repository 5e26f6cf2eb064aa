package metrics

import (
	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
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

// peerFamilies are the metrics of callers' connections and memory.
func peerFamilies() []family[clients.Usage] {
	return []family[clients.Usage]{
		gauge("peers", "Addresses that have connections; for IPv6, networks of 64 bits.", func(u clients.Usage) float64 { return float64(u.Peers) }),
		gauge("connections", "Connections of all addresses. Each further concurrent request of an HTTP/2 connection counts as one.", func(u clients.Usage) float64 { return float64(u.Connections) }),
		gauge("bodies_held_bytes", "Memory for requests and WebSocket messages in progress, without the first 16 KiB of each.", func(u clients.Usage) float64 { return float64(u.BodyBytes) }),
		gauge("bodies_limit_bytes", "Largest value of rockpool_bodies_held_bytes: --body-memory.", func(u clients.Usage) float64 { return float64(u.BodyLimit) }),
		counters("peer_refusals_total", "Connections, requests and messages that were refused, by the limit they reached. Alert on CONNECTIONS, BODIES, TOKEN_… and GRANT_…: a setting is too low, or a client floods the server.", []string{"bound"}, func(u clients.Usage, emit emitter[float64]) {
			for bound, n := range u.Refused {
				emit(float64(n), bound.String())
			}
		}),
	}
}

// compatFamilies are the metrics of requests at compatible APIs.
func compatFamilies() []family[[]compat.Count] {
	return []family[[]compat.Count]{
		histograms("compat_request_seconds", "Duration of requests to compatible APIs (--compat), to the end of their answers. The status is a class: 2xx, 4xx and so on; 1xx for a WebSocket. A tool of the API mcp is a route too, for example tools/call run_program.", []string{"api", "route", "status"}, func(all []compat.Count, emit emitter[timing.Reading]) {
			for _, c := range all {
				emit(c.Took, c.API, c.Pattern, c.Class)
			}
		}),
	}
}
