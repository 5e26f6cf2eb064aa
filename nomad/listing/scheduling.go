package listing

import (
	"cmp"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// EvaluationIDs maps Nomad's ids of evaluations to those for clients. "" is mapped to "".
type EvaluationIDs map[string]runtime.EvaluationID

// IdentifyEvaluations returns the ids of evaluations.
func IdentifyEvaluations(evaluations []*api.Evaluation) EvaluationIDs {
	ids := EvaluationIDs{"": ""}
	for _, e := range evaluations {
		ids[e.ID] = runtime.EvaluationID(sortable(e.CreateIndex, e.ID))
	}
	return ids
}

// sortable returns an id that sorts by creation, since Nomad's ids are random.
func sortable(index uint64, id string) string { return fmt.Sprintf("%016x-%s", index, id) }

// Evaluation converts an evaluation for clients, without its runner, environment and page.
func (ids EvaluationIDs) Evaluation(e *api.Evaluation) runtime.Evaluation {
	ours := runtime.Evaluation{
		ID: ids[e.ID], Type: runtime.EvaluationPlace, Priority: e.Priority,
		Trigger: cmp.Or(triggers[e.TriggeredBy], runtime.TriggerOther), Status: cmp.Or(statuses[e.Status], runtime.EvaluationPending),
		Reason: Explain(e), PreviousID: ids[e.PreviousEval], NextID: cmp.Or(ids[e.BlockedEval], ids[e.NextEval]),
		CreatedAt: time.Unix(0, e.CreateTime), WaitUntil: e.WaitUntil,
	}
	if ours.Trigger == runtime.TriggerDeregister {
		ours.Type = runtime.EvaluationStop
	}
	for _, queued := range e.QueuedAllocations {
		ours.Queued += queued
	}
	if ours.Status != runtime.EvaluationPending && ours.Status != runtime.EvaluationBlocked {
		ours.EndedAt = time.Unix(0, e.ModifyTime)
	}
	return ours
}

var triggers = map[string]runtime.EvaluationTrigger{
	"job-register":           runtime.TriggerRegister,
	"job-deregister":         runtime.TriggerDeregister,
	"alloc-failure":          runtime.TriggerAllocationLost,
	"alloc-stop":             runtime.TriggerAllocationLost,
	"max-disconnect-timeout": runtime.TriggerAllocationLost,
	"queued-allocs":          runtime.TriggerNoRoom,
	"max-plan-attempts":      runtime.TriggerNoRoom,
	"failed-follow-up":       runtime.TriggerFailedFollowUp,
	"node-update":            runtime.TriggerNodeChanged,
	"node-drain":             runtime.TriggerNodeChanged,
	"reconnect":              runtime.TriggerNodeChanged,
	"preemption":             runtime.TriggerPreempted,
}

var statuses = map[string]runtime.EvaluationStatus{
	api.EvalStatusBlocked:   runtime.EvaluationBlocked,
	api.EvalStatusPending:   runtime.EvaluationPending,
	api.EvalStatusComplete:  runtime.EvaluationComplete,
	api.EvalStatusFailed:    runtime.EvaluationFailed,
	api.EvalStatusCancelled: runtime.EvaluationCancelled,
}

// Allocation converts a runner's allocation for clients, without its evaluation.
func Allocation(a *api.AllocationListStub, r runtime.Runner, ready *Readiness) runtime.Allocation {
	ours := runtime.Allocation{
		ID: runtime.AllocationID(sortable(a.CreateIndex, a.ID)), RunnerID: r.ID, EnvironmentID: r.Environment.ID,
		Resources: r.Environment.Resources, Desired: runtime.DesiredRun, Status: runtime.AllocationPending, CreatedAt: time.Unix(0, a.CreateTime),
	}
	if a.DesiredStatus != api.AllocDesiredStatusRun {
		ours.Desired = runtime.DesiredStop
	}
	if ready != nil && ready.Allocation == a.ID {
		ours.RunningAt = ready.At
	}
	switch a.ClientStatus {
	case api.AllocClientStatusRunning:
		// Until its agent has answered it counts as pending.
		if !ours.RunningAt.IsZero() {
			ours.Status = runtime.AllocationRunning
		}
	case api.AllocClientStatusComplete:
		ours.Status = runtime.AllocationComplete
	case api.AllocClientStatusFailed:
		ours.Status, ours.Message = runtime.AllocationFailed, taskEnd(a)
	case api.AllocClientStatusLost:
		ours.Status, ours.Message = runtime.AllocationLost, "its node was lost"
	case api.AllocClientStatusUnknown:
		ours.Status, ours.Message = runtime.AllocationLost, "its node is disconnected"
	}
	if hasEnded(a) {
		ours.EndedAt = time.Unix(0, a.ModifyTime)
	}
	return ours
}

// LastAllocations returns the allocations of a removed runner, which Nomad forgets with its job.
func LastAllocations(all []*api.AllocationListStub, r runtime.Runner, ready *Readiness, now time.Time) []runtime.Allocation {
	last := make([]runtime.Allocation, 0, len(all))
	for _, a := range all {
		ours := Allocation(a, r, ready)
		ours.Desired = runtime.DesiredStop
		// The runner was removed, so the last list is outdated.
		if ours.Status == runtime.AllocationPending || ours.Status == runtime.AllocationRunning {
			ours.Status = runtime.AllocationComplete
		}
		if ours.EndedAt.IsZero() {
			ours.EndedAt = now
		}
		last = append(last, ours)
	}
	return last
}
