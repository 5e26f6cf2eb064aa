package listing

import (
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/job"
)

func TestEvaluationsAreExplained(t *testing.T) {
	full := map[string]*api.AllocationMetric{job.TaskName: {
		NodesEvaluated: 3, NodesFiltered: 1, NodesExhausted: 2,
		ConstraintFiltered: map[string]int{"missing drivers": 1},
		DimensionExhausted: map[string]int{"memory": 2, "cpu": 1},
		ClassExhausted:     map[string]int{"large": 2},
		QuotaExhausted:     []string{"cpu", "cpu"},
	}}
	const fullText = "cpu exhausted on 1 node, memory exhausted on 2 nodes, quota cpu exhausted (2 nodes), " +
		"missing drivers filters 1 node, class large is full on 2 nodes (3 nodes evaluated, 1 filtered, 2 exhausted)"
	for name, test := range map[string]struct {
		evals  []*api.Evaluation
		reason string
		over   bool
	}{
		"no evaluation: goes on": {nil, "", false},
		"pending: goes on":       {[]*api.Evaluation{{Status: api.EvalStatusPending}}, "", false},
		"complete without an allocation: over": {
			[]*api.Evaluation{{Status: api.EvalStatusComplete}}, "", true},
		"complete, another blocked: its metrics": {[]*api.Evaluation{
			{CreateIndex: 1, Status: api.EvalStatusComplete, FailedTGAllocs: full},
			{CreateIndex: 2, Status: api.EvalStatusBlocked, FailedTGAllocs: full},
		}, fullText, false},
		"blocked without metrics: waits for free resources": {[]*api.Evaluation{{Status: api.EvalStatusBlocked}}, "it waits for free resources", false},
		"several: the newest says why": {[]*api.Evaluation{
			{CreateIndex: 5, Status: api.EvalStatusBlocked, StatusDescription: "new"},
			{CreateIndex: 2, Status: api.EvalStatusCancelled, StatusDescription: "old"},
		}, "new", false},
		"failed: over": {[]*api.Evaluation{{Status: api.EvalStatusFailed, StatusDescription: "maximum attempts reached (5)"}},
			"Nomad's scheduler gave up: maximum attempts reached (5)", true},
		"failed, another pending: goes on": {[]*api.Evaluation{
			{CreateIndex: 1, Status: api.EvalStatusFailed, StatusDescription: "evaluation reached delivery limit (3)"},
			{CreateIndex: 2, Status: api.EvalStatusPending},
		}, "Nomad's scheduler gave up: evaluation reached delivery limit (3)", false},
		"cancelled: over":         {[]*api.Evaluation{{Status: api.EvalStatusCancelled}}, "its evaluation was cancelled", true},
		"quota reached: its name": {[]*api.Evaluation{{Status: api.EvalStatusBlocked, QuotaLimitReached: "small"}}, "the quota small is used up", false},
		"no node available: no node is ready": {[]*api.Evaluation{{Status: api.EvalStatusBlocked, FailedTGAllocs: map[string]*api.AllocationMetric{job.TaskName: {
			NodesAvailable: map[string]int{"dc1": 0}}}}}, "no node is ready and eligible in the job's datacenters and pool", false},
		"metrics of another group: its name": {[]*api.Evaluation{{Status: api.EvalStatusBlocked, FailedTGAllocs: map[string]*api.AllocationMetric{"g": {
			NodesEvaluated: 1, NodesFiltered: 1, NodesAvailable: map[string]int{"dc1": 1}, ClassFiltered: map[string]int{"x": 1}}}}},
			"group g: class x is filtered on 1 node (1 node evaluated, 1 filtered, 0 exhausted)", false},
	} {
		if reason, over := explain(test.evals); reason != test.reason || over != test.over {
			t.Errorf("%s: %q, %t, want %q, %t", name, reason, over, test.reason, test.over)
		}
	}
}

func TestOnlyRoomIsLacking(t *testing.T) {
	failed := func(m api.AllocationMetric) map[string]*api.AllocationMetric {
		return map[string]*api.AllocationMetric{job.TaskName: &m}
	}
	memory := failed(api.AllocationMetric{DimensionExhausted: map[string]int{"memory": 2}})
	for name, test := range map[string]struct {
		evals []*api.Evaluation
		want  []Dimension
	}{
		"blocked by memory: memory":                       {[]*api.Evaluation{{Status: api.EvalStatusBlocked, FailedTGAllocs: memory}}, []Dimension{Memory}},
		"blocked, an earlier one has the metrics: memory": {[]*api.Evaluation{{Status: api.EvalStatusBlocked}, {Status: api.EvalStatusComplete, FailedTGAllocs: memory}}, []Dimension{Memory}},
		"complete: nothing":                               {[]*api.Evaluation{{Status: api.EvalStatusComplete, FailedTGAllocs: memory}}, nil},
		"blocked without metrics: nothing":                {[]*api.Evaluation{{Status: api.EvalStatusBlocked}}, nil},
		"quota reached: nothing":                          {[]*api.Evaluation{{Status: api.EvalStatusBlocked, FailedTGAllocs: memory, QuotaLimitReached: "small"}}, nil},
		"filtered by class: nothing":                      {[]*api.Evaluation{{Status: api.EvalStatusBlocked, FailedTGAllocs: failed(api.AllocationMetric{ClassFiltered: map[string]int{"x": 1}})}}, nil},
		"blocked by a port: nothing":                      {[]*api.Evaluation{{Status: api.EvalStatusBlocked, FailedTGAllocs: failed(api.AllocationMetric{DimensionExhausted: map[string]int{"network: port": 1}})}}, nil},
	} {
		if got := lacks(test.evals); !slices.Equal(got, test.want) {
			t.Errorf("%s: it lacks %v, want %v", name, got, test.want)
		}
	}
}
