package scheduler

import (
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/runtime"
)

// EvaluationID names an evaluation; ids made later sort later.
type EvaluationID string

// An Evaluation is the work of bringing one job from what it has to what it
// wants, or of collecting what has ended. The package's comment draws its life.
type Evaluation struct {
	ID          EvaluationID
	Type        EvaluationType
	Job         runtime.RunnerID
	Environment runtime.EnvironmentID
	Priority    runtime.Priority
	Trigger     Trigger
	Status      EvaluationStatus
	Reason      string // why it is BLOCKED, FAILED or CANCELLED, for people
	Shortages   []Shortage
	Queued      int // runners that it could not place
	WaitUntil   time.Time
	Previous    EvaluationID // that this one goes on for
	Next        EvaluationID // that goes on for this one

	CreateIndex   uint64
	ModifyIndex   uint64
	SnapshotIndex uint64 // of the state that it was decided on
	CreatedAt     time.Time
	DequeuedAt    time.Time // the last time; zero: never
	EndedAt       time.Time // zero: it hasn't

	since  uint64            // the index at which its runner was wished for: its age
	wanted runtime.Resources // of a BLOCKED one
}

// An EvaluationType says which workers take an evaluation.
type EvaluationType string

// The types.
const (
	TypePlace   EvaluationType = "PLACE"   // a runner is wanted
	TypeStop    EvaluationType = "STOP"    // a runner isn't wanted any more: goes on while the machine drains
	TypeCollect EvaluationType = "COLLECT" // what has ended is forgotten
)

// Types are all, in a fixed order.
func Types() []EvaluationType { return []EvaluationType{TypePlace, TypeStop, TypeCollect} }

// Stops free room for others, so they go first; a collection can wait.
const (
	priorityStop    runtime.Priority = 100
	priorityCollect runtime.Priority = 1
)

// A Trigger says what made an evaluation.
type Trigger string

// The triggers.
const (
	TriggerRegister   Trigger = "REGISTER"
	TriggerDeregister Trigger = "DEREGISTER"
	TriggerRestore    Trigger = "RESTORE"         // the server came back
	TriggerLost       Trigger = "ALLOCATION_LOST" // an allocation that never ran is gone
	TriggerNoRoom     Trigger = "NO_ROOM"         // another evaluation could not place its runner
	TriggerFollowUp   Trigger = "FAILED_FOLLOW_UP"
	TriggerInterval   Trigger = "INTERVAL"
)

// An EvaluationStatus only moves forward: PENDING, BLOCKED, then one of the
// others. A BLOCKED one that is tried again stays BLOCKED until it can end.
type EvaluationStatus string

// The statuses.
const (
	EvaluationPending   EvaluationStatus = "PENDING"
	EvaluationBlocked   EvaluationStatus = "BLOCKED"   // it waits for room
	EvaluationComplete  EvaluationStatus = "COMPLETE"  // done, or taken over by a BLOCKED one
	EvaluationFailed    EvaluationStatus = "FAILED"    // delivered too often; another one follows it up
	EvaluationCancelled EvaluationStatus = "CANCELLED" // a newer one of the job does its work
)

// Ended reports whether nothing more happens to an evaluation.
func (s EvaluationStatus) Ended() bool {
	return s != EvaluationPending && s != EvaluationBlocked
}

// end returns e ended, and whether it hadn't before.
func (e Evaluation) end(status EvaluationStatus, now time.Time) (*Evaluation, bool) {
	if e.Status.Ended() {
		return nil, false
	}
	e.Status, e.EndedAt = status, now
	return &e, true
}

// evaluate returns a new evaluation of a job.
func evaluate(job *Job, trigger Trigger) *Evaluation {
	e := &Evaluation{
		ID:          EvaluationID(newID()),
		Type:        TypePlace,
		Job:         job.ID,
		Environment: job.Environment,
		Priority:    job.Priority,
		Trigger:     trigger,
		Status:      EvaluationPending,
		since:       job.CreateIndex,
	}
	if job.Stopped {
		e.Type, e.Priority = TypeStop, priorityStop
	}
	return e
}

// newID returns a UUID of version 7, as package runtime's ids are.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
