package bed

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// An Evaluation is one as the API shows it.
type Evaluation struct {
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

// A Place is an allocation.
type Place struct {
	ID, RunnerID, EnvironmentID, EvaluationID, Desired, Status string
	Resources                                                  struct{ MemoryMiB int }
	CreatedAt, RunningAt, EndedAt                              time.Time
}

// Scheduled is what the scheduler shows.
type Scheduled struct {
	Cluster struct {
		Capacity    struct{ MemoryMiB, MemoryMiBUsed int }
		Evaluations struct {
			Nodes      []Evaluation
			PageInfo   struct{ HasNextPage bool }
			TotalCount int
			Edges      []struct{ Cursor string }
		}
		Allocations struct {
			Nodes      []Place
			TotalCount int
		}
	}
	Environment struct{ Pool struct{ Reason string } }
	PoolAlerts  []struct{ EnvironmentID, Reason string }
}

// Evaluations returns those of an environment, with a status or with any.
func (b Bed) Evaluations(t testing.TB, environment string, status ...string) []Evaluation {
	t.Helper()
	var out Scheduled
	b.Call(t, `query($id: ID, $status: [EvaluationStatus!]) { cluster { evaluations(environmentId: $id, status: $status) { totalCount nodes {
		id type runnerId environmentId trigger status reason previousId nextId priority queued
		shortages { dimension wanted free kept capacity } createdAt endedAt waitMs workMs } } } }`, object{"id": environment, "status": status}, &out)
	if out.Cluster.Evaluations.TotalCount != len(out.Cluster.Evaluations.Nodes) {
		t.Errorf("%d of %d evaluations are on one page", len(out.Cluster.Evaluations.Nodes), out.Cluster.Evaluations.TotalCount)
	}
	return out.Cluster.Evaluations.Nodes
}

// Places returns the allocations that a filter lets through.
func (b Bed) Places(t testing.TB, filter object) []Place {
	t.Helper()
	var out Scheduled
	b.Call(t, `query($env: ID, $runner: ID, $status: [AllocationStatus!]) { cluster { allocations(environmentId: $env, runnerId: $runner, status: $status) { nodes {
		id runnerId environmentId evaluationId desired status resources { memoryMiB } createdAt runningAt endedAt } } } }`, filter, &out)
	return out.Cluster.Allocations.Nodes
}

// Release releases a runner.
func (b Bed) Release(t testing.TB, runner string) {
	t.Helper()
	if err := client.Release(t.Context(), b, runner); err != nil {
		t.Fatalf("release runner %s: %v", runner, err)
	}
}

// AwaitBlocked waits until an environment has one runner that waits for room,
// with this priority.
func (b Bed) AwaitBlocked(t testing.TB, environment string, priority runtime.Priority) {
	t.Helper()
	var blocked []Evaluation
	wait.For(t, environment+" waits for room", func() bool {
		blocked = b.Evaluations(t, environment, "BLOCKED")
		return len(blocked) == 1
	})
	if blocked[0].Priority != int(priority) || !strings.HasPrefix(blocked[0].Reason, "memory exhausted: ") {
		t.Errorf("%+v", blocked)
	}
}

// WantPages goes through an environment's evaluations one by one.
func (b Bed) WantPages(t testing.TB, environment string) {
	t.Helper()
	all := b.Evaluations(t, environment)
	youngestFirst := func(a, b Evaluation) int { return strings.Compare(b.ID, a.ID) }
	if len(all) < 2 || !slices.IsSortedFunc(all, youngestFirst) {
		t.Errorf("%+v", all)
	}
	const query = `query($id: ID, $first: Int, $after: String) { cluster {
		evaluations(environmentId: $id, first: $first, after: $after) { nodes { id } edges { cursor } pageInfo { hasNextPage } totalCount } } }`
	variables := object{"id": environment, "first": 1}
	for i, want := range all {
		var out Scheduled
		b.Call(t, query, variables, &out)
		page := out.Cluster.Evaluations
		if len(page.Nodes) != 1 || page.Nodes[0].ID != want.ID || page.PageInfo.HasNextPage != (i < len(all)-1) || page.TotalCount != len(all) {
			t.Fatalf("page %d: %+v", i, page)
		}
		variables["after"] = page.Edges[0].Cursor
	}
	b.Refused(t, query, object{"after": "?"}, runtime.CodeInvalidInput, "after")
	b.Refused(t, query, object{"first": 1001}, runtime.CodeInvalidInput, "first")
}
