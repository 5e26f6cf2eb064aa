package api

import (
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// allocations returns the allocations that match a filter.
func allocations(t testing.TB, b bed.Bed, filter object) []bed.Allocation {
	t.Helper()
	var out bed.Scheduled
	b.Call(t, `query($env: ID, $runner: ID, $status: [AllocationStatus!]) { cluster { allocations(environmentId: $env, runnerId: $runner, status: $status) { nodes {
		id runnerId environmentId evaluationId desired status resources { memoryMiB } createdAt runningAt endedAt } } } }`, filter, &out)
	return out.Cluster.Allocations.Nodes
}

// awaitBlocked waits until an environment has one runner that doesn't fit, with this priority.
func awaitBlocked(t testing.TB, b bed.Bed, environment string, priority runtime.Priority) {
	t.Helper()
	var blocked []bed.Evaluation
	wait.For(t, environment+" waits for room", func() bool {
		blocked = b.Evaluations(t, environment, "BLOCKED")
		return len(blocked) == 1
	})
	if blocked[0].Priority != int(priority) || !strings.HasPrefix(blocked[0].Reason, "memory exhausted: ") {
		t.Errorf("%+v", blocked)
	}
}

// wantPages reads an environment's evaluations one per page.
func wantPages(t testing.TB, b bed.Bed, environment string) {
	t.Helper()
	all := b.Evaluations(t, environment)
	youngestFirst := func(a, b bed.Evaluation) int { return strings.Compare(b.ID, a.ID) }
	if len(all) < 2 || !slices.IsSortedFunc(all, youngestFirst) {
		t.Errorf("%+v", all)
	}
	const query = `query($id: ID, $first: Int, $after: String) { cluster {
		evaluations(environmentId: $id, first: $first, after: $after) { nodes { id } edges { cursor } pageInfo { hasNextPage } totalCount } } }`
	variables := object{"id": environment, "first": 1}
	for i, want := range all {
		var out bed.Scheduled
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
