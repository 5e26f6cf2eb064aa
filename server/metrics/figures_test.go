package metrics

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/timing"
)

// number gives every number in a struct, and in those in it, one of its own, and
// returns them by their fields' names.
func number(into any) map[string]int64 {
	numbers := map[string]int64{}
	var fill func(prefix string, v reflect.Value)
	fill = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			name := prefix + v.Type().Field(i).Name
			switch field := v.Field(i); {
			case field.CanInt():
				field.SetInt(int64(1000 + len(numbers)))
				numbers[name] = field.Int()
			case field.Kind() == reflect.Struct:
				fill(name+".", field)
			}
		}
	}
	fill("", reflect.ValueOf(into).Elem())
	return numbers
}

// clusterFigures are the fields of [local.Stats] by the names that they are shown under.
func clusterFigures() map[string]string {
	return map[string]string{
		"scheduler_enqueued_total":                   "Scheduler.Enqueued",
		"scheduler_dequeued_total":                   "Scheduler.Dequeued",
		"scheduler_acks_total":                       "Scheduler.Acked",
		"scheduler_nacks_total":                      "Scheduler.Nacked",
		"scheduler_nack_timeouts_total":              "Scheduler.NackTimeouts",
		"scheduler_superseded_total":                 "Scheduler.Superseded",
		"scheduler_failed_total":                     "Scheduler.Failed",
		"scheduler_blocked_total":                    "Scheduler.Blocked",
		"scheduler_unblocked_total":                  "Scheduler.Unblocked",
		"scheduler_reblocked_total":                  "Scheduler.Reblocked",
		`scheduler_plans_total{result="APPLIED"}`:    "Scheduler.PlansApplied",
		`scheduler_plans_total{result="REFUSED"}`:    "Scheduler.PlansRefused",
		"scheduler_placed_total":                     "Scheduler.Placed",
		"scheduler_stopped_total":                    "Scheduler.Stopped",
		"scheduler_collected_total":                  "Scheduler.Collected",
		`scheduler_evaluations{state="READY"}`:       "Scheduler.Depths.Ready",
		`scheduler_evaluations{state="PENDING"}`:     "Scheduler.Depths.Pending",
		`scheduler_evaluations{state="OUTSTANDING"}`: "Scheduler.Depths.Outstanding",
		`scheduler_evaluations{state="DELAYED"}`:     "Scheduler.Depths.Delayed",
		`scheduler_evaluations{state="FAILED"}`:      "Scheduler.Depths.Failed",
		`scheduler_evaluations{state="BLOCKED"}`:     "Scheduler.Depths.Blocked",
		"task_starts_total":                          "Tasks.Starts",
		"task_start_failures_total":                  "Tasks.StartFailures",
		"task_restarts_total":                        "Tasks.Restarts",
		"task_restores_total":                        "Tasks.Restores",
		"task_lost_total":                            "Tasks.Lost",
		"task_exits_total":                           "Tasks.Exits",
		"task_kills_total":                           "Tasks.Kills",
		"task_forced_kills_total":                    "Tasks.ForcedKills",
		"task_removal_failures_total":                "Tasks.RemovalFailures",
		"task_leaks_total":                           "Tasks.Leaks",
		"runners_leaked":                             "Leaked",
		"cluster_problems":                           "Problems",
	}
}

// half are durations, of which a bucket has the half.
func half() timing.Reading {
	return timing.Reading{Bounds: []time.Duration{time.Millisecond, time.Second}, Counts: []int64{4, 2, 1}, Sum: 1500 * time.Millisecond}
}

func wantHalf(want func(string, any), name, labels string) {
	want(name+"_bucket{"+labels+`,le="0.001"}`, 4)
	want(name+"_bucket{"+labels+`,le="1"}`, 6)
	want(name+"_bucket{"+labels+`,le="+Inf"}`, 7)
	want(name+"_sum{"+labels+"}", 1.5)
	want(name+"_count{"+labels+"}", 7)
}

func wanted(t *testing.T, body string) func(name string, value any) {
	return func(name string, value any) {
		t.Helper()
		if line := fmt.Sprintf("\nrockpool_%s %v\n", name, value); !strings.Contains(body, line) {
			t.Errorf("no %s in\n%s", line, body)
		}
	}
}

// Every figure is shown under its own name, and as it is.
func TestFiguresAreNotMixedUp(t *testing.T) {
	var l local.Stats
	numbers := number(&l)
	l.Tasks.Phases = map[health.Phase]timing.Reading{health.PhaseTurn: half(), health.PhasePlace: half()}
	l.Scheduler.Timings = map[scheduler.Step]timing.Reading{scheduler.StepPlan: half()}
	l.Scheduler.Depths.Lacking = map[runtime.Dimension]int{runtime.DimensionMemory: 7}
	l.Node.Capacity = runtime.Resources{CPUMHz: 100, MemoryMiB: 200, Processes: 400, WorkspaceMiB: 800}
	l.Node.Used = runtime.Resources{CPUMHz: 50, MemoryMiB: 50, Processes: 50, WorkspaceMiB: 1600}
	var e activity.Stats
	engines := number(&e)
	e.Claims = map[runtime.EnvironmentID]activity.ClaimStats{
		"":  {Results: map[string]int64{"CLAIMED": 0, "INTERNAL": 3}},
		"a": {Results: map[string]int64{"CLAIMED": 4, "NO_RUNNER_AVAILABLE": 0, "INTERNAL": 0}, Took: half()},
	}
	e.Pools = []activity.PoolStats{{PoolStatus: runtime.PoolStatus{EnvironmentID: "a", Size: 1, Idle: 2, Starting: 3, Claimed: 4, Stopping: 5, Waiting: 6}, Alert: true}}
	e.Finished = map[runtime.Outcome]int64{runtime.OutcomeLost: 8}
	e.Watchers = map[activity.WatchKind]int64{activity.WatchPools: 9}

	_, body := scrape(t, Handler(Sources{Version: "v", Engine: func() activity.Stats { return e }, Local: func() local.Stats { return l }, Logger: zap.NewNop(), Peers: func() clients.Usage {
		return clients.Usage{Peers: 21, Connections: 22, BodyBytes: 23, BodyLimit: 24, Refused: map[clients.Bound]int64{clients.PeerBodies: 25, clients.Framing: 0}}
	}}))
	want := wanted(t, body)
	for name, field := range clusterFigures() {
		want(name, numbers[field])
		delete(numbers, field)
	}
	for name, field := range map[string]string{
		"executions_started_total": "Started", "executions_resumed_total": "Resumed", "executions_unfinished": "Unfinished",
		"executions_collected_total": "Collected", "executions_kept_bytes": "Kept", "executions_kept_limit_bytes": "KeepLimit",
		"output_bytes_total": "Output", "output_lost_bytes_total": "OutputLost", "restore_skipped": "Skipped",
	} {
		want(name, engines[field])
		delete(engines, field)
	}
	for name, value := range map[string]any{
		"scheduler_refreshes_total":                                  l.Scheduler.PlansRefused,
		`scheduler_ready_evaluations{type="PLACE"}`:                  l.Scheduler.Depths.Ready,
		`scheduler_blocked_evaluations{dimension="MEMORY"}`:          7,
		`scheduler_blocked_evaluations{dimension="CPU"}`:             0,
		`scheduler_promised_ratio{dimension="CPU"}`:                  0.5,
		`scheduler_promised_ratio{dimension="MEMORY"}`:               0.25,
		`scheduler_promised_ratio{dimension="PROCESSES"}`:            0.125,
		`scheduler_promised_ratio{dimension="WORKSPACE"}`:            2,
		`claims_total{environment="",result="INTERNAL"}`:             3,
		`claims_total{environment="a",result="CLAIMED"}`:             4,
		`claims_total{environment="a",result="NO_RUNNER_AVAILABLE"}`: 0,
		`pool_wanted_runners{environment="a"}`:                       1,
		`pool_runners{environment="a",state="IDLE"}`:                 2,
		`pool_runners{environment="a",state="STARTING"}`:             3,
		`pool_runners{environment="a",state="CLAIMED"}`:              4,
		`pool_runners{environment="a",state="STOPPING"}`:             5,
		`pool_waiting_claims{environment="a"}`:                       6,
		`pool_alert{environment="a"}`:                                1,
		`executions_finished_total{outcome="LOST"}`:                  8,
		`watchers{kind="POOLS"}`:                                     9,
		"peers":                                                      21,
		"connections":                                                22,
		"bodies_held_bytes":                                          23,
		"bodies_limit_bytes":                                         24,
		`peer_refusals_total{bound="PEER_BODIES"}`:                   25,
		`peer_refusals_total{bound="FRAMING"}`:                       0,
	} {
		want(name, value)
	}
	for name, labels := range map[string]string{
		"scheduler_step_duration_seconds":     `step="PLAN",type="PLACE"`,
		"runner_start_phase_duration_seconds": `phase="PLACE"`,
		"claim_duration_seconds":              `environment="a"`,
	} {
		wantHalf(want, name, labels)
	}
	for field := range numbers {
		if !strings.HasPrefix(field, "Node.") {
			t.Errorf("%s isn't shown", field)
		}
	}
	for field := range engines {
		if field != "Starting.Sum" {
			t.Errorf("%s isn't shown", field)
		}
	}
}

// nomadFigures are the fields of [nomad.Stats] by the names that they are shown under.
func nomadFigures() map[string]string {
	all := map[string]string{
		`scheduler_evaluations{state="PENDING"}`: "Pending",
		`scheduler_evaluations{state="BLOCKED"}`: "Blocked",
		"scheduler_placed_total":                 "Placed",
		"nomad_call_retries_total":               "Calls.Retries",
		"nomad_lock_losses_total":                "Lock.Losses",
		"nomad_bridges":                          "Bridges.Open",
		"nomad_bridges_limit":                    "Bridges.Budget",
		"nomad_bridges_waiting":                  "Bridges.Waiting",
		"nomad_bridge_opens_total":               "Bridges.Opens",
		"nomad_bridge_failures_total":            "Bridges.Failures",
		"nomad_streams":                          "Bridges.OpenStreams",
		"nomad_streams_opened_total":             "Bridges.Streams",
	}
	for name, field := range clusterFigures() {
		if strings.HasPrefix(field, "Tasks.") && field != "Tasks.ForcedKills" || field == "Leaked" || field == "Problems" {
			all[name] = field
		}
	}
	return all
}

func TestFiguresOfNomadAreNotMixedUp(t *testing.T) {
	var n nomad.Stats
	numbers := number(&n)
	n.Tasks.Phases = map[health.Phase]timing.Reading{health.PhaseRegister: half()}
	n.Lacking = map[listing.Dimension]int{listing.Disk: 7}
	n.Capacity = runtime.Capacity{CPUMHz: 100, MemoryMiB: 200, CPUMHzUsed: 50, MemoryMiBUsed: 50}
	n.Calls.Calls = map[connection.CallKind]connection.CallStats{
		connection.ListJobs:  {Results: map[connection.CallResult]int64{connection.CallDone: 3, connection.CallFailed: 0}, Took: half()},
		connection.OtherCall: {},
	}
	n.Lock.Held, n.Lock.Age, n.LockLasts = true, 1500*time.Millisecond, 10*time.Second
	show := func() string {
		_, body := scrape(t, Handler(Sources{Version: "v", Engine: func() activity.Stats { return activity.Stats{} }, Nomad: func() nomad.Stats { return n }, Logger: zap.NewNop()}))
		return body
	}
	body := show()
	want := wanted(t, body)
	for name, field := range nomadFigures() {
		want(name, numbers[field])
		delete(numbers, field)
	}
	for name, value := range map[string]any{
		`scheduler_blocked_evaluations{dimension="DISK"}`:     7,
		`scheduler_blocked_evaluations{dimension="CPU"}`:      0,
		`scheduler_promised_ratio{dimension="CPU"}`:           0.5,
		`scheduler_promised_ratio{dimension="MEMORY"}`:        0.25,
		`nomad_calls_total{call="LIST_JOBS",result="DONE"}`:   3,
		`nomad_calls_total{call="LIST_JOBS",result="FAILED"}`: 0,
		"nomad_lock_held":        1,
		"nomad_lock_age_seconds": 1.5,
		"nomad_lock_ttl_seconds": 10,
	} {
		want(name, value)
	}
	wantHalf(want, "runner_start_phase_duration_seconds", `phase="REGISTER"`)
	wantHalf(want, "nomad_call_duration_seconds", `call="LIST_JOBS"`)
	if strings.Contains(body, `nomad_call_duration_seconds_count{call="OTHER"}`) {
		t.Error("calls that weren't made took a time")
	}
	for field := range numbers {
		if !strings.HasPrefix(field, "Capacity.") && field != "Lock.Age" && field != "LockLasts" && field != "Tasks.ForcedKills" {
			t.Errorf("%s isn't shown", field)
		}
	}
	n.Lock.Held = false
	if body = show(); !strings.Contains(body, "rockpool_nomad_lock_held 0") || strings.Contains(body, "nomad_lock_age_seconds ") {
		t.Error("a lock that isn't held has an age")
	}
}
