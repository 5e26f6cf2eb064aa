package local

import (
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// Reports continue across a restart: restored allocations are the oldest, and have no evaluation.
func TestEvaluationsAndAllocationsArePaged(t *testing.T) {
	b := newBench(t)
	env := b.config.tight(t)
	b.runKept()
	found := b.begin(env)
	b.stop()
	b.reopened()
	placed := b.begin(env)
	waits, why := b.wish(env, runtime.PriorityRefill)

	all, total, err := b.Allocations(t.Context(), runtime.AllocationFilter{})
	if err != nil || total != 2 || len(all) != 2 {
		t.Fatalf("%+v, %d, %v", all, total, err)
	}
	if a := all[0]; a.RunnerID != placed || a.EvaluationID == "" || a.Resources != env.Resources || a.EnvironmentID != env.ID {
		t.Errorf("placed: %+v", a)
	}
	if a := all[1]; a.RunnerID != found || a.EvaluationID != "" || a.Status != runtime.AllocationRunning || a.Desired != runtime.DesiredRun || a.RunningAt.IsZero() {
		t.Errorf("found: %+v", a)
	}
	page, total, _ := b.Allocations(t.Context(), runtime.AllocationFilter{Limit: 1, After: string(all[0].ID)})
	if total != 2 || len(page) != 1 || page[0].ID != all[1].ID {
		t.Errorf("second page: %+v of %d", page, total)
	}

	evaluations := func(f runtime.EvaluationFilter) []runtime.Evaluation {
		found, total, err := b.Evaluations(t.Context(), f)
		if err != nil || total != len(found) || !slices.IsSortedFunc(found, func(a, b runtime.Evaluation) int { return strings.Compare(string(b.ID), string(a.ID)) }) {
			t.Errorf("%+v: %+v, %d, %v", f, found, total, err)
		}
		return found
	}
	blocked := evaluations(runtime.EvaluationFilter{RunnerID: waits, Statuses: []runtime.EvaluationStatus{runtime.EvaluationBlocked}})
	if len(blocked) != 1 || blocked[0].Reason != why || len(blocked[0].Shortages) != 1 || blocked[0].Shortages[0].Dimension != runtime.DimensionMemory {
		t.Errorf("blocked: %+v", blocked)
	}
	for count, f := range map[int]runtime.EvaluationFilter{
		2: {RunnerID: waits}, // the one without room, and the waiting one
		1: {Statuses: []runtime.EvaluationStatus{runtime.EvaluationBlocked, runtime.EvaluationFailed}},
		0: {EnvironmentID: "another"},
	} {
		if got := evaluations(f); len(got) != count {
			t.Errorf("%+v: %d, want %d", f, len(got), count)
		}
	}
	if got := evaluations(runtime.EvaluationFilter{EnvironmentID: env.ID}); len(got) < 3 {
		t.Errorf("of the environment: %+v", got)
	}
}
