package scheduler

import (
	"cmp"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/turns"
)

// An Evaluation is the work of bringing one job from what it has to what it
// wants, or of collecting what has ended. The package's comment draws its life.
type Evaluation struct {
	ID          runtime.EvaluationID
	Type        runtime.EvaluationType
	Job         runtime.RunnerID
	Tenant      runtime.TenantID // of the environment
	Environment runtime.EnvironmentID
	Priority    runtime.Priority
	Trigger     runtime.EvaluationTrigger
	Status      runtime.EvaluationStatus
	Reason      string // why it is BLOCKED, FAILED or CANCELLED, for people
	Shortages   []Shortage
	Queued      int // runners that it could not place
	WaitUntil   time.Time
	Previous    runtime.EvaluationID // that this one goes on for
	Next        runtime.EvaluationID // that goes on for this one

	CreateIndex   uint64
	ModifyIndex   uint64
	SnapshotIndex uint64 // of the state that it was decided on
	CreatedAt     time.Time
	DequeuedAt    time.Time // the last time; zero: never
	EndedAt       time.Time // zero: it hasn't

	since  uint64            // the index at which its runner was wished for: its age
	wanted runtime.Resources // of a BLOCKED one
}

// Types are all, in a fixed order.
func Types() []runtime.EvaluationType {
	return []runtime.EvaluationType{runtime.EvaluationPlace, runtime.EvaluationStop, runtime.EvaluationCollect}
}

// Stops free room for others, so they go first; a collection can wait.
const (
	priorityStop    runtime.Priority = 100
	priorityCollect runtime.Priority = 1
)

// end returns e ended, and whether it hadn't before.
func (e Evaluation) end(status runtime.EvaluationStatus, now time.Time) (*Evaluation, bool) {
	if e.Status.Ended() {
		return nil, false
	}
	e.Status, e.EndedAt = status, now
	return &e, true
}

// evaluate returns a new evaluation of a job.
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

// A queue holds evaluations: by priority, then the tenants take turns, then the
// environments of one tenant, then by age.
type queue = turns.Queue[runtime.EnvironmentID, *Evaluation]

// newQueue returns an empty one. An evaluation that comes back is as old as it was,
// and as its job is.
func newQueue() *queue {
	return &queue{Compare: func(a, b *Evaluation) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.ID, b.ID))
	}}
}

// newID returns a UUID of version 7, as package runtime's ids are.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
