package bed

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
)

// An Evaluation is an evaluation as the API shows it.
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

// A Allocation is an allocation as the API shows it.
type Allocation struct {
	ID, RunnerID, EnvironmentID, EvaluationID, Desired, Status string
	Resources                                                  struct{ MemoryMiB int }
	CreatedAt, RunningAt, EndedAt                              time.Time
}

// Scheduled is the scheduler's state as the API shows it.
type Scheduled struct {
	Cluster struct {
		Capacity    struct{ MemoryMiB, MemoryMiBPromisable, MemoryMiBUsed int }
		Evaluations struct {
			Nodes      []Evaluation
			PageInfo   struct{ HasNextPage bool }
			TotalCount int
			Edges      []struct{ Cursor string }
		}
		Allocations struct {
			Nodes      []Allocation
			TotalCount int
		}
	}
	Environment struct{ Pool struct{ Reason string } }
	PoolAlerts  []struct{ EnvironmentID, Reason string }
}

// Evaluations returns those of an environment, with any of these statuses, or all.
func (b Bed) Evaluations(t testing.TB, environment string, status ...string) []Evaluation {
	t.Helper()
	var out Scheduled
	b.Call(t, `query($id: ID, $status: [EvaluationStatus!]) { cluster { evaluations(environmentId: $id, status: $status) { totalCount nodes {
		id type runnerId environmentId trigger status reason previousId nextId priority queued
		shortages { dimension wanted free kept capacity } createdAt endedAt waitMs workMs } } } }`, object{"id": environment, "status": status}, &out)
	if out.Cluster.Evaluations.TotalCount != len(out.Cluster.Evaluations.Nodes) {
		t.Errorf("one page has %d of %d evaluations", len(out.Cluster.Evaluations.Nodes), out.Cluster.Evaluations.TotalCount)
	}
	return out.Cluster.Evaluations.Nodes
}

// Release releases a runner.
func (b Bed) Release(t testing.TB, runner string) {
	t.Helper()
	if err := client.Release(t.Context(), b, runner); err != nil {
		t.Fatalf("release runner %s: %v", runner, err)
	}
}
