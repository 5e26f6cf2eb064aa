package graph

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/test/clustertest"
)

// reportingCluster is a fake cluster that reports its scheduling.
type reportingCluster struct {
	*clustertest.Fake
	evaluations      []runtime.Evaluation
	allocations      []runtime.Allocation
	evaluationFilter runtime.EvaluationFilter // of the last call
	allocationFilter runtime.AllocationFilter
}

var _ engine.Scheduler = (*reportingCluster)(nil)

func (c *reportingCluster) Evaluations(_ context.Context, f runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	c.evaluationFilter = f
	return c.evaluations[:min(f.Limit, len(c.evaluations))], len(c.evaluations), nil
}

func (c *reportingCluster) Allocations(_ context.Context, f runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	c.allocationFilter = f
	return c.allocations[:min(f.Limit, len(c.allocations))], len(c.allocations), nil
}

const schedulingQuery = `query($first: Int, $after: String) { cluster {
	evaluations(environmentId: "a", runnerId: "r", status: [FAILED, BLOCKED], first: $first, after: $after) { totalCount pageInfo { hasNextPage } nodes {
		id type runnerId environmentId priority trigger status reason shortages { dimension wanted free kept capacity } queued
		previousId nextId createdAt waitUntil dequeuedAt endedAt waitMs workMs } }
	allocations(status: [LOST], first: $first, after: $after) { totalCount pageInfo { hasNextPage } nodes {
		id runnerId environmentId evaluationId resources { cpuMHz } desired status message createdAt runningAt endedAt } }
} }`

func TestSchedulingOfTheCluster(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1_800_000_000_000 + ms)) }
	c := &reportingCluster{
		Fake: clustertest.NewFake(),
		evaluations: []runtime.Evaluation{
			{ID: "3", Type: runtime.EvaluationCollect, Priority: 1, Trigger: runtime.TriggerInterval, Status: runtime.EvaluationComplete, CreatedAt: at(0), DequeuedAt: at(5), EndedAt: at(7)},
			{ID: "2", Type: runtime.EvaluationPlace, RunnerID: "r", EnvironmentID: "a", Priority: 50, Trigger: runtime.TriggerRegister, Status: runtime.EvaluationFailed,
				Reason: "why", Queued: 1, PreviousID: "1", NextID: "4", WaitUntil: at(1), CreatedAt: at(0), EndedAt: at(2),
				Shortages: []runtime.Shortage{{Dimension: runtime.DimensionCPU, Wanted: 4, Free: 3, Kept: 2, Capacity: 1 << 40}}},
		},
		allocations: []runtime.Allocation{
			{ID: "a2", RunnerID: "r", EnvironmentID: "a", Resources: runtime.Resources{CPUMHz: 7}, Desired: runtime.DesiredStop, Status: runtime.AllocationLost, Message: "why", EvaluationID: "1", CreatedAt: at(0), RunningAt: at(1), EndedAt: at(2)},
			{ID: "a1", RunnerID: "q", EnvironmentID: "b", Desired: runtime.DesiredRun, Status: runtime.AllocationPending, CreatedAt: at(0)},
		},
	}
	b := newBedOver(t, c, c.Fake)
	var got, want any
	b.send(schedulingQuery, nil, &got)
	stamp := func(ms int) string { return at(ms).UTC().Format(time.RFC3339Nano) }
	text := fmt.Sprintf(`{"cluster": {
		"evaluations": {"totalCount": 2, "pageInfo": {"hasNextPage": false}, "nodes": [
			{"id": "3", "type": "COLLECT", "runnerId": null, "environmentId": null, "priority": 1, "trigger": "INTERVAL", "status": "COMPLETE", "reason": null, "shortages": [], "queued": 0,
			 "previousId": null, "nextId": null, "createdAt": %[1]q, "waitUntil": null, "dequeuedAt": %[4]q, "endedAt": %[5]q, "waitMs": 5, "workMs": 2},
			{"id": "2", "type": "PLACE", "runnerId": "r", "environmentId": "a", "priority": 50, "trigger": "REGISTER", "status": "FAILED", "reason": "why",
			 "shortages": [{"dimension": "CPU", "wanted": 4, "free": 3, "kept": 2, "capacity": 1099511627776}], "queued": 1,
			 "previousId": "1", "nextId": "4", "createdAt": %[1]q, "waitUntil": %[2]q, "dequeuedAt": null, "endedAt": %[3]q, "waitMs": 2, "workMs": null}]},
		"allocations": {"totalCount": 2, "pageInfo": {"hasNextPage": false}, "nodes": [
			{"id": "a2", "runnerId": "r", "environmentId": "a", "evaluationId": "1", "resources": {"cpuMHz": 7}, "desired": "STOP", "status": "LOST", "message": "why", "createdAt": %[1]q, "runningAt": %[2]q, "endedAt": %[3]q},
			{"id": "a1", "runnerId": "q", "environmentId": "b", "evaluationId": null, "resources": {"cpuMHz": 0}, "desired": "RUN", "status": "PENDING", "message": null, "createdAt": %[1]q, "runningAt": null, "endedAt": null}]}}}`,
		stamp(0), stamp(1), stamp(2), stamp(5), stamp(7))
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	b.send(schedulingQuery, in{"first": 1, "after": "eA"}, &got)
	if diff := cmp.Diff(runtime.EvaluationFilter{EnvironmentID: "a", RunnerID: "r", Statuses: []runtime.EvaluationStatus{"FAILED", "BLOCKED"}, After: "x", Limit: 2}, c.evaluationFilter); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(runtime.AllocationFilter{Statuses: []runtime.AllocationStatus{"LOST"}, After: "x", Limit: 2}, c.allocationFilter); diff != "" {
		t.Error(diff)
	}
	next := got.(in)["cluster"].(in)["evaluations"].(in)
	if nodes := next["nodes"].([]any); len(nodes) != 1 || next["pageInfo"].(in)["hasNextPage"] != true {
		t.Errorf("a page of one: %v", next)
	}
}

func TestRunnersHaveTheirEvents(t *testing.T) {
	fake := clustertest.NewFake()
	b := newBedOver(t, fake, fake)
	if err := fake.Start(t.Context(), "x", runtime.Environment{ID: "a"}, runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	fake.Kill("x", runtime.GoneEvicted)
	if err := fake.Remove(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Cluster struct {
			Told, Never []struct{ At, Kind, Message string }
		}
	}
	b.send(`{ cluster { told: taskEvents(runnerId: "x") { at kind message } never: taskEvents(runnerId: "y") { at } } }`, nil, &got)
	var told []string
	for _, event := range got.Cluster.Told {
		if at, err := time.Parse(time.RFC3339Nano, event.At); err == nil && time.Since(at) < time.Minute && event.Kind != "READY" {
			told = append(told, event.Kind+" "+event.Message)
		}
	}
	want := []string{"PLACED It was placed on a machine.", "GONE It is gone: killed by a test.", "ENDED All its processes have ended."}
	if diff := cmp.Diff(want, told); diff != "" || got.Cluster.Never == nil || len(got.Cluster.Never) > 0 {
		t.Errorf("%s, and of one that never was %v", diff, got.Cluster.Never)
	}
}

// A cluster that doesn't report its scheduling has empty pages. Invalid arguments are refused
// there, too.
func TestUnreportedSchedulingIsEmpty(t *testing.T) {
	b := newBed(t)
	var got struct {
		Cluster map[string]struct {
			TotalCount *int
			Nodes      []any
		}
	}
	b.send(schedulingQuery, nil, &got)
	for name, page := range got.Cluster {
		if page.TotalCount == nil || *page.TotalCount != 0 || page.Nodes == nil || len(page.Nodes) != 0 {
			t.Errorf("%s: %+v", name, page)
		}
	}
	if len(got.Cluster) != 2 {
		t.Errorf("%+v", got)
	}
	for field, query := range map[string]string{
		"first":  `{ cluster { evaluations(first: 0) { totalCount } } }`,
		"after":  `{ cluster { allocations(after: "?") { totalCount } } }`,
		"status": `{ cluster { allocations(status: [LOOST]) { totalCount } } }`,
	} {
		if code, at := b.send(query, nil, nil); code == nil || field != "status" && at != field {
			t.Errorf("%s: %v %v", query, code, at)
		}
	}
	many := "{ cluster {" + strings.Repeat(` x%d: evaluations(first: 1) { totalCount }`, 60) + "} }"
	numbers := make([]any, 60)
	for i := range numbers {
		numbers[i] = i
	}
	if code, _ := b.send(fmt.Sprintf(many, numbers...), nil, nil); code == nil {
		t.Error("looking through everything sixty times costs too little")
	}
}

// A value that the cluster doesn't report is null.
func TestClusterHasTheLargestRunner(t *testing.T) {
	fake := clustertest.NewFake()
	c := &fixedStatusCluster{Fake: fake}
	b := newBedOver(t, c, fake)
	for _, test := range []struct {
		is   runtime.ClusterStatus
		want string
	}{
		{runtime.ClusterStatus{}, `{"cluster": {"coreMHz": null, "largestRunner": null, "hostInterpreters": []}}`},
		{
			runtime.ClusterStatus{CoreMHz: 2500, LargestRunner: &runtime.Resources{CPUMHz: 5000, MemoryMiB: 900}, HostInterpreters: []string{"sh"}},
			`{"cluster": {"coreMHz": 2500, "largestRunner": {"cpuMHz": 5000, "memoryMiB": 900}, "hostInterpreters": ["sh"]}}`,
		},
	} {
		c.status = test.is
		var got, want any
		b.send(`{ cluster { coreMHz largestRunner { cpuMHz memoryMiB } hostInterpreters } }`, nil, &got)
		if err := json.Unmarshal([]byte(test.want), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// fixedStatusCluster is a cluster with a fixed status.
type fixedStatusCluster struct {
	*clustertest.Fake
	status runtime.ClusterStatus
}

func (c *fixedStatusCluster) Status(context.Context) (runtime.ClusterStatus, error) {
	return c.status, nil
}
