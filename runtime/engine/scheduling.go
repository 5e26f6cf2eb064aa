package engine

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// A Scheduler is a cluster that tells how its runners get their places. Both
// methods return a page, the youngest first by id, and how many there are on all
// pages; what ended long enough ago is forgotten.
type Scheduler interface {
	Evaluations(ctx context.Context, filter runtime.EvaluationFilter) (page []runtime.Evaluation, total int, err error)
	Allocations(ctx context.Context, filter runtime.AllocationFilter) (page []runtime.Allocation, total int, err error)
}

// Evaluations returns a page of the cluster's evaluations, the youngest first,
// and how many there are in all: none where the cluster tells of none.
func (e *Engine) Evaluations(ctx context.Context, filter runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	s, ok := e.cluster.(Scheduler)
	if !ok {
		return nil, 0, nil
	}
	return s.Evaluations(ctx, filter)
}

// Allocations returns a page of the cluster's allocations, as Evaluations does.
func (e *Engine) Allocations(ctx context.Context, filter runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	s, ok := e.cluster.(Scheduler)
	if !ok {
		return nil, 0, nil
	}
	return s.Allocations(ctx, filter)
}

// TaskEvents returns what happened to a runner, the oldest first; none where
// nothing is known (any more).
func (e *Engine) TaskEvents(ctx context.Context, id runtime.RunnerID) ([]runtime.TaskEvent, error) {
	return e.cluster.TaskEvents(ctx, id)
}
