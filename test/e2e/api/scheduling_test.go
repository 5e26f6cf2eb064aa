package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// tightMachine starts a server whose capacity is a tenth of the machine's memory, all of it free.
// It returns this capacity in MiB.
func tightMachine(t *testing.T, data string) (p *bed.Process, room int) {
	t.Helper()
	p = bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--memory-overcommit", "0.1", "--alert-timeout", "1")
	var all struct{ Environments []struct{ ID string } }
	p.Call(t, `{ environments { id } }`, nil, &all)
	for _, env := range all.Environments {
		p.Call(t, `mutation($id: ID!) { deleteEnvironment(input: {id: $id}) { deleted } }`, object{"id": env.ID}, nil)
	}
	var now bed.Scheduled
	wait.For(t, "the first environments' runners are gone", func() bool {
		p.Call(t, `{ cluster { capacity { memoryMiB memoryMiBUsed } } }`, nil, &now)
		return now.Cluster.Capacity.MemoryMiBUsed == 0 && len(allocations(t, p.Bed, object{"status": []string{"PENDING", "RUNNING"}})) == 0
	})
	return p, int(float64(now.Cluster.Capacity.MemoryMiB) * 0.1)
}

// TestE2ERunnerThatDoesNotFitSaysWhyAndWaits: every listing shows what the runner lacks, and the
// runner starts when room is freed. One with a waiting claim goes first.
func TestE2ERunnerThatDoesNotFitSaysWhyAndWaits(t *testing.T) {
	t.Parallel()
	p, room := tightMachine(t, bed.DataDir(t))
	memory := room * 2 / 5 // two fit, and half of a third
	p.Put(t, object{"id": "held", "poolSize": 0, "resources": object{"memoryMiB": memory}})
	held := []string{p.ClaimUnreleased(t, "held"), p.ClaimUnreleased(t, "held")}

	p.Put(t, object{"id": "short", "poolSize": 1, "resources": object{"memoryMiB": memory}})
	want := fmt.Sprintf("memory exhausted: %d MiB wanted, %d MiB free", memory, room-2*memory)
	var told bed.Scheduled
	wait.For(t, "pool and alert say "+want, func() bool {
		told = bed.Scheduled{}
		p.Call(t, `{ environment(id: "short") { pool { reason } } poolAlerts { environmentId reason } }`, nil, &told)
		return told.Environment.Pool.Reason == want && len(told.PoolAlerts) == 1 && told.PoolAlerts[0].Reason == want
	})
	var blocked []bed.Evaluation
	wait.For(t, "it has waited for half a second", func() bool {
		blocked = p.Evaluations(t, "short", "BLOCKED")
		return len(blocked) != 1 || blocked[0].WaitMs >= 500
	})
	if len(blocked) != 1 {
		t.Fatalf("blocked: %+v", blocked)
	}
	waits := blocked[0]
	if waits.Reason != want || waits.Trigger != "NO_ROOM" || waits.Type != "PLACE" || waits.Priority != int(runtime.PriorityRefill) || waits.Queued != 1 || waits.WorkMs != nil || !waits.EndedAt.IsZero() {
		t.Errorf("blocked: %+v", waits)
	}
	if s := waits.Shortages; len(s) != 1 || s[0].Dimension != "MEMORY" || s[0].Wanted != memory || s[0].Free != room-2*memory || s[0].Kept != 0 || s[0].Capacity != room {
		t.Errorf("it lacks %+v", s)
	}
	if r := p.RunnersOf(t, "short")[waits.RunnerID]; r.State != "STARTING" {
		t.Errorf("its runner is %+v", r)
	}
	var taken bed.Scheduled
	p.Call(t, `{ cluster { capacity { memoryMiBUsed memoryMiBPromisable } } }`, nil, &taken)
	if c := taken.Cluster.Capacity; c.MemoryMiBPromisable != room {
		t.Errorf("%d MiB can be promised, want the %d of which evaluations say what is free", c.MemoryMiBPromisable, room)
	}
	if used := taken.Cluster.Capacity.MemoryMiBUsed; used != 2*memory {
		t.Errorf("%d MiB are allocated, want those of two runners with %d MiB each", used, memory)
	}
	first := p.Evaluations(t, "short", "COMPLETE")
	if len(first) != 1 || first[0].ID != waits.PreviousID || first[0].NextID != waits.ID || first[0].Trigger != "REGISTER" || first[0].WorkMs == nil {
		t.Errorf("before it: %+v", first)
	}
	wantPages(t, p.Bed, "short")

	p.Release(t, held[0])
	p.Full(t, "short", 1)
	var running []bed.Allocation
	wait.For(t, "its allocation is RUNNING", func() bool {
		running = allocations(t, p.Bed, object{"env": "short", "status": []string{"RUNNING"}})
		return len(running) == 1
	})
	if a := running[0]; a.RunnerID != waits.RunnerID || a.EvaluationID != waits.ID || a.Desired != "RUN" || a.Resources.MemoryMiB != memory || a.RunningAt.Before(a.CreatedAt) {
		t.Errorf("its allocation: %+v; it waited as %+v", a, waits)
	}
	done := p.Evaluations(t, "short", "COMPLETE")
	if len(done) != 2 || done[0].ID != waits.ID || done[0].Reason != "" || len(done[0].Shortages) != 0 || done[0].WaitMs < waits.WaitMs || done[0].WorkMs == nil {
		t.Errorf("done: %+v", done)
	}
	if gone := allocations(t, p.Bed, object{"runner": held[0]}); len(gone) != 1 || gone[0].Status != "COMPLETE" || gone[0].Desired != "STOP" || gone[0].EndedAt.IsZero() {
		t.Errorf("the released runner's allocation: %+v", gone)
	}

	// On the full machine a claim's runner takes precedence over a refill that has waited longer.
	p.Put(t, object{"id": "short", "poolSize": 2})
	awaitBlocked(t, p.Bed, "short", runtime.PriorityRefill)
	claimed := make(chan string, 1)
	go func() {
		defer close(claimed) // even if the claim fails the test
		claimed <- p.ClaimUnreleased(t, "held")
	}()
	awaitBlocked(t, p.Bed, "held", runtime.PriorityWaiting)
	p.Release(t, held[1])
	got := wait.Receive(t, claimed, "the claim's runner")
	wait.For(t, "the claim's runner has its allocation", func() bool {
		a := allocations(t, p.Bed, object{"runner": got})
		return len(a) == 1 && a[0].Status == "RUNNING" && a[0].EnvironmentID == "held"
	})
	awaitBlocked(t, p.Bed, "short", runtime.PriorityRefill)
}

// TestE2EShortPoolSaysWhy: only two runners of a pool of five fit. The blocked evaluations of the
// others explain why the pool is short and why health is DEGRADED, although some runners are idle.
// Its alert has the same reason, and keeps it in its history when it is resolved.
func TestE2EShortPoolSaysWhy(t *testing.T) {
	t.Parallel()
	p, room := tightMachine(t, bed.DataDir(t))
	memory := room * 2 / 5
	p.Put(t, object{"id": "short", "poolSize": 5, "resources": object{"memoryMiB": memory}})
	type said struct {
		Environment struct {
			Pool struct {
				Idle, Starting int
				Reason         string
			}
		}
		PoolAlerts []struct{ EnvironmentID, Reason string }
		Health     struct {
			Components []struct{ Name, Status, Message string }
		}
		PoolAlertHistory []struct{ EnvironmentID, State, Reason string }
	}
	var told said
	ask := func() {
		told = said{}
		p.Call(t, `{ environment(id: "short") { pool { idle starting reason } } poolAlerts { environmentId reason } health { components { name status message } } }`, nil, &told)
	}
	wait.For(t, "the pool says why it is short", func() bool {
		ask()
		return told.Environment.Pool.Reason != "" && told.Environment.Pool.Idle == 2 && len(told.PoolAlerts) > 0 && strings.HasPrefix(told.PoolAlerts[0].Reason, "memory")
	})
	ask() // parts of one answer may have different ages; now nothing changes
	want := fmt.Sprintf("memory exhausted: %d MiB wanted, %d MiB free", memory, room-2*memory)
	if pool := told.Environment.Pool; pool.Starting != 3 || pool.Reason != want || told.PoolAlerts[0].Reason != want {
		t.Errorf("%+v, want the reason %q", told, want)
	}
	if out := p.Works(t, "env", "list"); !strings.Contains(out, want) {
		t.Errorf("env list: %s", out)
	}
	health := fmt.Sprint(told.Health.Components)
	if !strings.Contains(health, "{pool short DEGRADED 2 of 5 runners are idle: "+want+"}") {
		t.Errorf("health: %s", health)
	}

	p.Change(t, object{"id": "short", "poolSize": 2})
	wait.For(t, "a pool of two is full, and says nothing", func() bool {
		told = said{}
		p.Call(t, `{ environment(id: "short") { pool { idle starting reason } } }`, nil, &told)
		return told.Environment.Pool.Reason == "" && told.Environment.Pool.Starting == 0
	})
	wait.For(t, "the history has the alert and its end", func() bool {
		told = said{}
		p.Call(t, `{ poolAlertHistory { environmentId state reason } }`, nil, &told)
		h := told.PoolAlertHistory
		return len(h) >= 2 && h[0].EnvironmentID == "short" && h[0].State == "RESOLVED" && h[1].EnvironmentID == "short" && h[1].State == "RAISED"
	})
}

// TestE2EEndedEvaluationsAreDeletedByAge: evaluations and allocations are deleted each at their own
// age.
func TestE2EEndedEvaluationsAreDeletedByAge(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--keep-evaluations", "1", "--keep-allocations", "86400")
	runner := p.ClaimUnreleased(t, "shell")
	p.Release(t, runner)
	wait.For(t, "the removed runner's evaluations are deleted", func() bool {
		for _, e := range p.Evaluations(t, "") {
			if e.RunnerID == runner {
				return false
			}
		}
		return true
	})
	wait.For(t, "its allocation has ended, and is kept", func() bool { // its removal may take longer than a second
		a := allocations(t, p.Bed, object{"runner": runner})
		if len(a) != 1 {
			t.Fatalf("its allocation: %+v", a)
		}
		return a[0].Status == "COMPLETE"
	})
	p.End(t, syscall.SIGTERM, false)
	p = bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--keep-evaluations", "86400", "--keep-allocations", "1")
	runner = p.ClaimUnreleased(t, "shell")
	p.Release(t, runner)
	wait.For(t, "its allocation is forgotten", func() bool { return len(allocations(t, p.Bed, object{"runner": runner})) == 0 })
	if all := p.Evaluations(t, "shell", "COMPLETE"); !slices.ContainsFunc(all, func(e bed.Evaluation) bool { return e.RunnerID == runner }) {
		t.Errorf("its evaluations: %+v", all)
	}
	p.Finish(t)
}

// TestClaimSaysThatItNeverFits claims a runner of an environment that is larger than the machine.
func TestClaimSaysThatItNeverFits(t *testing.T) {
	t.Parallel()
	b := bed.Open(t)
	b.Put(t, object{"id": "giant", "resources": object{"memoryMiB": 1 << 20}, "poolSize": 1})
	wait.For(t, "the claim's error says it", func() bool { // it has no reason before the first evaluation
		var e *client.Error
		err := b.Do(t.Context(), `mutation { claimRunner(input: {environmentId: "giant", waitFor: 0}) { runner { id } } }`, nil, nil)
		return errors.As(err, &e) && e.Extensions.Code == runtime.CodeNoRunnerAvailable &&
			strings.Contains(e.Message, "memory") && strings.Contains(e.Message, "1048576 MiB") && strings.Contains(e.Message, "never")
	})
}
