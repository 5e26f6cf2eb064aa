package placing

import (
	"strings"

	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
)

// Evaluations returns a page of the scheduler's evaluations, newest first, and how many match the
// filter in all.
func (p *Placer) Evaluations(filter runtime.EvaluationFilter) ([]runtime.Evaluation, int) {
	all := func(yield func(runtime.Evaluation) bool) {
		for e := range p.Scheduler.Snapshot().EachEvaluation(filter.RunnerID) {
			if filter.Matches(e.Job, e.Environment, e.Status) && !yield(shownEvaluation(e)) {
				return
			}
		}
	}
	return runtime.Paginate(all, filter, func(e runtime.Evaluation) string { return string(e.ID) })
}

// Allocations returns a page of the scheduler's allocations, newest first, and how many match the
// filter in all. A restored allocation has its runner's id, so it sorts as the oldest.
func (p *Placer) Allocations(filter runtime.AllocationFilter) ([]runtime.Allocation, int) {
	all := func(yield func(runtime.Allocation) bool) {
		for a := range p.Scheduler.Snapshot().EachAllocation(filter.RunnerID) {
			if filter.Matches(a.Job, a.Environment, a.Status) && !yield(shownAllocation(a)) {
				return
			}
		}
	}
	return runtime.Paginate(all, filter, func(a runtime.Allocation) string { return string(a.ID) })
}

// shownEvaluation converts an evaluation for the API.
func shownEvaluation(e scheduler.Evaluation) runtime.Evaluation {
	shown := runtime.Evaluation{
		ID:            e.ID,
		Type:          e.Type,
		RunnerID:      e.Job,
		EnvironmentID: e.Environment,
		Priority:      int(e.Priority),
		Trigger:       e.Trigger,
		Status:        e.Status,
		Reason:        e.Reason,
		Queued:        e.Queued,
		PreviousID:    e.Previous,
		NextID:        e.Next,
		CreatedAt:     e.CreatedAt,
		WaitUntil:     e.WaitUntil,
		DequeuedAt:    e.DequeuedAt,
		EndedAt:       e.EndedAt,
	}
	for _, s := range e.Shortages {
		shown.Shortages = append(shown.Shortages, runtime.Shortage{
			Dimension: runtime.Dimension(strings.ToUpper(string(s.Dimension))),
			Wanted:    int64(s.Wanted),
			Free:      int64(s.Free),
			Kept:      int64(s.Kept),
			Capacity:  int64(s.Capacity),
		})
	}
	return shown
}

// shownAllocation converts an allocation for the API.
func shownAllocation(a scheduler.Allocation) runtime.Allocation {
	return runtime.Allocation{
		ID:            a.ID,
		RunnerID:      a.Job,
		EnvironmentID: a.Environment,
		EvaluationID:  a.Evaluation,
		Resources:     a.Resources,
		Desired:       a.Desired,
		Status:        a.Status,
		Message:       a.Message,
		CreatedAt:     a.CreatedAt,
		RunningAt:     a.RunningAt,
		EndedAt:       a.EndedAt,
	}
}
