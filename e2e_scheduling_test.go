package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// An evaluation is one as the API shows it.
type evaluation struct {
	ID, Type, RunnerID, EnvironmentID, Trigger, Status, Reason, PreviousID, NextID string
	Priority, Queued                                                               int
	Shortages                                                                      []struct {
		Dimension                    string
		Wanted, Free, Kept, Capacity int
	}
	CreatedAt, EndedAt time.Time
	WaitMs             float64
	WorkMs             *float64
}

type place struct {
	ID, RunnerID, EnvironmentID, EvaluationID, Desired, Status string
	Resources                                                  struct{ MemoryMiB int }
	CreatedAt, RunningAt, EndedAt                              time.Time
}

type scheduled struct {
	Cluster struct {
		Capacity    struct{ MemoryMiB, MemoryMiBUsed int }
		Evaluations struct {
			Nodes      []evaluation
			PageInfo   struct{ HasNextPage bool }
			TotalCount int
			Edges      []struct{ Cursor string }
		}
		Allocations struct {
			Nodes      []place
			TotalCount int
		}
	}
	Environment struct{ Pool struct{ Reason string } }
	PoolAlerts  []struct{ EnvironmentID, Reason string }
}

func (b bed) evaluations(t testing.TB, environment string, status ...string) []evaluation {
	t.Helper()
	var out scheduled
	b.call(t, `query($id: ID, $status: [EvaluationStatus!]) { cluster { evaluations(environmentId: $id, status: $status) { totalCount nodes {
		id type runnerId environmentId trigger status reason previousId nextId priority queued
		shortages { dimension wanted free kept capacity } createdAt endedAt waitMs workMs } } } }`, object{"id": environment, "status": status}, &out)
	if out.Cluster.Evaluations.TotalCount != len(out.Cluster.Evaluations.Nodes) {
		t.Errorf("%d of %d evaluations are on one page", len(out.Cluster.Evaluations.Nodes), out.Cluster.Evaluations.TotalCount)
	}
	return out.Cluster.Evaluations.Nodes
}

func (b bed) places(t testing.TB, filter object) []place {
	t.Helper()
	var out scheduled
	b.call(t, `query($env: ID, $runner: ID, $status: [AllocationStatus!]) { cluster { allocations(environmentId: $env, runnerId: $runner, status: $status) { nodes {
		id runnerId environmentId evaluationId desired status resources { memoryMiB } createdAt runningAt endedAt } } } }`, filter, &out)
	return out.Cluster.Allocations.Nodes
}

func (b bed) release(t testing.TB, runner string) {
	t.Helper()
	b.call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
}

// tightMachine is a server that promises a tenth of the machine's memory, all of
// it free, and how many MiB that is.
func tightMachine(t *testing.T, data string) (p *process, room int) {
	t.Helper()
	p = serve(t, data, rockpool(t), "serve", "--data", data, "--memory-overcommit", "0.1", "--alert-timeout", "1")
	var all struct{ Environments []struct{ ID string } }
	p.call(t, `{ environments { id } }`, nil, &all)
	for _, env := range all.Environments {
		p.call(t, `mutation($id: ID!) { deleteEnvironment(input: {id: $id}) { deleted } }`, object{"id": env.ID}, nil)
	}
	var now scheduled
	wait.For(t, "the first environments' runners are gone", func() bool {
		p.call(t, `{ cluster { capacity { memoryMiB memoryMiBUsed } } }`, nil, &now)
		return now.Cluster.Capacity.MemoryMiBUsed == 0 && len(p.places(t, object{"status": []string{"PENDING", "RUNNING"}})) == 0
	})
	return p, int(float64(now.Cluster.Capacity.MemoryMiB) * 0.1)
}

// A runner that has no room says what it lacks wherever one looks, and is placed
// when room is freed. A claim's goes first.
func TestE2EWhatHasNoRoomSaysSoAndWaits(t *testing.T) {
	t.Parallel()
	p, room := tightMachine(t, dataDir(t))
	memory := room * 2 / 5 // two fit, and half a one more
	p.put(t, object{"id": "held", "poolSize": 0, "resources": object{"memoryMiB": memory}})
	held := []string{p.claimLoosely(t, "held"), p.claimLoosely(t, "held")}

	p.put(t, object{"id": "short", "poolSize": 1, "resources": object{"memoryMiB": memory}})
	want := fmt.Sprintf("memory exhausted: %d MiB wanted, %d MiB free", memory, room-2*memory)
	var told scheduled
	wait.For(t, "pool and alert say "+want, func() bool {
		told = scheduled{}
		p.call(t, `{ environment(id: "short") { pool { reason } } poolAlerts { environmentId reason } }`, nil, &told)
		return told.Environment.Pool.Reason == want && len(told.PoolAlerts) == 1 && told.PoolAlerts[0].Reason == want
	})
	var blocked []evaluation
	wait.For(t, "it has waited for half a second", func() bool {
		blocked = p.evaluations(t, "short", "BLOCKED")
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
	if r := p.runnersOf(t, "short")[waits.RunnerID]; r.State != "STARTING" {
		t.Errorf("its runner is %+v", r)
	}
	var taken scheduled
	p.call(t, `{ cluster { capacity { memoryMiBUsed } } }`, nil, &taken)
	if used := taken.Cluster.Capacity.MemoryMiBUsed; used != 2*memory {
		t.Errorf("%d MiB are taken, where two runners have %d MiB each, and one waits", used, memory)
	}
	first := p.evaluations(t, "short", "COMPLETE")
	if len(first) != 1 || first[0].ID != waits.PreviousID || first[0].NextID != waits.ID || first[0].Trigger != "REGISTER" || first[0].WorkMs == nil {
		t.Errorf("before it: %+v", first)
	}
	p.wantPages(t, "short")

	p.release(t, held[0])
	p.full(t, "short", 1)
	var running []place
	wait.For(t, "its place is RUNNING", func() bool {
		running = p.places(t, object{"env": "short", "status": []string{"RUNNING"}})
		return len(running) == 1
	})
	if a := running[0]; a.RunnerID != waits.RunnerID || a.EvaluationID != waits.ID || a.Desired != "RUN" || a.Resources.MemoryMiB != memory || a.RunningAt.Before(a.CreatedAt) {
		t.Errorf("its place: %+v; it waited as %+v", a, waits)
	}
	done := p.evaluations(t, "short", "COMPLETE")
	if len(done) != 2 || done[0].ID != waits.ID || done[0].Reason != "" || len(done[0].Shortages) != 0 || done[0].WaitMs < waits.WaitMs || done[0].WorkMs == nil {
		t.Errorf("done: %+v", done)
	}
	if gone := p.places(t, object{"runner": held[0]}); len(gone) != 1 || gone[0].Status != "COMPLETE" || gone[0].Desired != "STOP" || gone[0].EndedAt.IsZero() {
		t.Errorf("the released runner's place: %+v", gone)
	}

	// On the full machine a claim's runner goes before a refill that waited longer.
	p.put(t, object{"id": "short", "poolSize": 2})
	p.awaitBlocked(t, "short", runtime.PriorityRefill)
	claimed := make(chan string, 1)
	go func() {
		defer close(claimed) // also where the claim fails the test
		claimed <- p.claimLoosely(t, "held")
	}()
	p.awaitBlocked(t, "held", runtime.PriorityWaiting)
	p.release(t, held[1])
	got := wait.Receive(t, claimed, "the claim's runner")
	wait.For(t, "the claim's runner has its place", func() bool {
		a := p.places(t, object{"runner": got})
		return len(a) == 1 && a[0].Status == "RUNNING" && a[0].EnvironmentID == "held"
	})
	p.awaitBlocked(t, "short", runtime.PriorityRefill)
}

// TestE2EShortPoolSaysWhy: two runners of a pool of three have room. The third one's
// blocked evaluation is why the pool is short and health is DEGRADED, although no
// alert stands: enough are idle.
func TestE2EShortPoolSaysWhy(t *testing.T) {
	t.Parallel()
	p, room := tightMachine(t, dataDir(t))
	memory := room * 2 / 5
	p.put(t, object{"id": "short", "poolSize": 3, "resources": object{"memoryMiB": memory}})
	p.awaitBlocked(t, "short", runtime.PriorityRefill)
	type said struct {
		Environment struct {
			Pool struct {
				Idle, Starting int
				Reason         string
			}
		}
		PoolAlerts []struct{ EnvironmentID string }
		Health     struct {
			Components []struct{ Name, Status, Message string }
		}
	}
	var told said
	wait.For(t, "the pool says why it is short", func() bool {
		told = said{}
		p.call(t, `{ environment(id: "short") { pool { idle starting reason } } poolAlerts { environmentId } health { components { name status message } } }`, nil, &told)
		return told.Environment.Pool.Reason != "" && told.Environment.Pool.Idle == 2
	})
	want := fmt.Sprintf("memory exhausted: %d MiB wanted, %d MiB free", memory, room-2*memory)
	if pool := told.Environment.Pool; pool.Starting != 1 || pool.Reason != want || len(told.PoolAlerts) != 0 {
		t.Errorf("%+v, want the reason %q and no alert", told, want)
	}
	health := fmt.Sprint(told.Health.Components)
	if !strings.Contains(health, "{pool short DEGRADED "+want+"}") {
		t.Errorf("health: %s", health)
	}

	p.change(t, object{"id": "short", "poolSize": 2})
	wait.For(t, "a pool of two is full, and says nothing", func() bool {
		told = said{}
		p.call(t, `{ environment(id: "short") { pool { idle starting reason } } }`, nil, &told)
		return told.Environment.Pool.Reason == "" && told.Environment.Pool.Starting == 0
	})
}

// TestE2EWhatEndedIsForgotten has evaluations and places forgotten each at their
// own age.
func TestE2EWhatEndedIsForgotten(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, data, rockpool(t), "serve", "--data", data, "--keep-evaluations", "1", "--keep-allocations", "86400")
	runner := p.claimLoosely(t, "shell")
	p.release(t, runner)
	wait.For(t, "the evaluations of what came and went are forgotten", func() bool {
		for _, e := range p.evaluations(t, "") {
			if e.RunnerID == runner {
				return false
			}
		}
		return true
	})
	if a := p.places(t, object{"runner": runner}); len(a) != 1 || a[0].Status != "COMPLETE" {
		t.Errorf("its place: %+v", a)
	}
	p.end(t, syscall.SIGTERM, false)
	p = serve(t, data, rockpool(t), "serve", "--data", data, "--keep-evaluations", "86400", "--keep-allocations", "1")
	runner = p.claimLoosely(t, "shell")
	p.release(t, runner)
	wait.For(t, "its place is forgotten", func() bool { return len(p.places(t, object{"runner": runner})) == 0 })
	if all := p.evaluations(t, "shell", "COMPLETE"); !slices.ContainsFunc(all, func(e evaluation) bool { return e.RunnerID == runner }) {
		t.Errorf("its evaluations: %+v", all)
	}
	p.finish(t)
}

// awaitBlocked waits until an environment has one runner that waits for room,
// with this priority.
func (b bed) awaitBlocked(t testing.TB, environment string, priority runtime.Priority) {
	t.Helper()
	var blocked []evaluation
	wait.For(t, environment+" waits for room", func() bool {
		blocked = b.evaluations(t, environment, "BLOCKED")
		return len(blocked) == 1
	})
	if blocked[0].Priority != int(priority) || !strings.HasPrefix(blocked[0].Reason, "memory exhausted: ") {
		t.Errorf("%+v", blocked)
	}
}

// wantPages goes through an environment's evaluations one by one.
func (b bed) wantPages(t testing.TB, environment string) {
	t.Helper()
	all := b.evaluations(t, environment)
	youngestFirst := func(a, b evaluation) int { return strings.Compare(b.ID, a.ID) }
	if len(all) < 2 || !slices.IsSortedFunc(all, youngestFirst) {
		t.Errorf("%+v", all)
	}
	const query = `query($id: ID, $first: Int, $after: String) { cluster {
		evaluations(environmentId: $id, first: $first, after: $after) { nodes { id } edges { cursor } pageInfo { hasNextPage } totalCount } } }`
	variables := object{"id": environment, "first": 1}
	for i, want := range all {
		var out scheduled
		b.call(t, query, variables, &out)
		page := out.Cluster.Evaluations
		if len(page.Nodes) != 1 || page.Nodes[0].ID != want.ID || page.PageInfo.HasNextPage != (i < len(all)-1) || page.TotalCount != len(all) {
			t.Fatalf("page %d: %+v", i, page)
		}
		variables["after"] = page.Edges[0].Cursor
	}
	b.refused(t, query, object{"after": "?"}, runtime.CodeInvalidInput, "after")
	b.refused(t, query, object{"first": 1001}, runtime.CodeInvalidInput, "first")
}
