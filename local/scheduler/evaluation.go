package scheduler

import (
	"cmp"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
)

// An Evaluation is the work of bringing one job from its present state to the wanted one, or of
// collecting ended rows. The package comment draws its life.
type Evaluation struct {
	ID          runtime.EvaluationID
	Type        runtime.EvaluationType
	Job         runtime.RunnerID
	Tenant      runtime.TenantID // of the environment
	Environment runtime.EnvironmentID
	Priority    runtime.Priority
	Trigger     runtime.EvaluationTrigger
	Status      runtime.EvaluationStatus
	Reason      string // why it is BLOCKED, FAILED or CANCELLED, as a text
	Shortages   []Shortage
	Queued      int // runners that it couldn't place: 0 or 1
	WaitUntil   time.Time
	Previous    runtime.EvaluationID // the evaluation that this one continues
	Next        runtime.EvaluationID // the evaluation that continues this one

	CreateIndex   uint64
	ModifyIndex   uint64
	SnapshotIndex uint64 // index of the state that the decision is based on
	CreatedAt     time.Time
	DequeuedAt    time.Time // of the last delivery; zero: none
	EndedAt       time.Time // zero: it hasn't ended

	since  uint64            // CreateIndex of its job, which orders evaluations by age
	wanted runtime.Resources // resources of a BLOCKED one's runner
}

// Types returns all evaluation types in a fixed order.
func Types() []runtime.EvaluationType {
	return []runtime.EvaluationType{runtime.EvaluationPlace, runtime.EvaluationStop, runtime.EvaluationCollect}
}

// Stops free room for others, so they go first; collections go last. Placements have priority 1 to
// 99.
const (
	priorityStop    runtime.Priority = 100
	priorityCollect runtime.Priority = 1
)

// end returns a copy of e that has ended, and false if e had ended already.
func (e Evaluation) end(status runtime.EvaluationStatus, now time.Time) (*Evaluation, bool) {
	if e.Status.Ended() {
		return nil, false
	}
	e.Status, e.EndedAt = status, now
	return &e, true
}

// evaluate returns a new evaluation of a job: a stop if the job is stopped, else a placement.
func evaluate(job *Job, trigger runtime.EvaluationTrigger) *Evaluation {
	e := &Evaluation{
		ID:          runtime.EvaluationID(newID()),
		Type:        runtime.EvaluationPlace,
		Job:         job.ID,
		Tenant:      job.Tenant,
		Environment: job.Environment,
		Priority:    job.Priority,
		Trigger:     trigger,
		Status:      runtime.EvaluationPending,
		since:       job.CreateIndex,
	}
	if job.Stopped {
		e.Type, e.Priority = runtime.EvaluationStop, priorityStop
	}
	return e
}

// A queue orders evaluations by priority; within one, tenants take turns; within a tenant, its
// environments; within an environment, by age.
type queue = fairqueue.Queue[runtime.EnvironmentID, *Evaluation]

// newQueue returns an empty queue. An evaluation that is queued again keeps its age, which is its
// job's.
func newQueue() *queue {
	return &queue{Compare: func(a, b *Evaluation) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.ID, b.ID))
	}}
}

// newID returns a UUID of version 7, like the ids of package runtime: ids sort by age.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
