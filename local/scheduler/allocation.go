package scheduler

import (
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// An Allocation is a runner's place on this machine. It takes room from the plan that made it until
// Update reports that it has ended; an allocation that is stopping still takes its room.
type Allocation struct {
	ID          runtime.AllocationID
	Job         runtime.RunnerID
	Environment runtime.EnvironmentID
	Evaluation  runtime.EvaluationID // the evaluation that placed it; "": it was restored
	Resources   runtime.Resources
	Desired     runtime.DesiredState     // what the scheduler wants
	Status      runtime.AllocationStatus // as reported by Update
	Message     string                   // as reported by Update

	CreateIndex  uint64
	ModifyIndex  uint64
	DesiredIndex uint64 // the index at which Desired changed last
	CreatedAt    time.Time
	RunningAt    time.Time // zero: it hasn't run
	EndedAt      time.Time // zero: it hasn't ended
}

// allocationOrder is the order in which an allocation's status moves; it never moves back.
var allocationOrder = []runtime.AllocationStatus{runtime.AllocationPending, runtime.AllocationRunning, runtime.AllocationComplete, runtime.AllocationFailed, runtime.AllocationLost}

// advance returns a copy of a moved forward to status, and false if that isn't a move forward. It
// is the only function that changes an allocation's status.
func (a Allocation) advance(status runtime.AllocationStatus, message string, now time.Time) (*Allocation, bool) {
	if a.Status.Ended() || slices.Index(allocationOrder, a.Status) >= slices.Index(allocationOrder, status) {
		return nil, false
	}
	a.Status, a.Message = status, message
	if status == runtime.AllocationRunning {
		a.RunningAt = now
	}
	if status.Ended() {
		a.EndedAt = now
	}
	return &a, true
}

// replaceable reports whether a's job may get another allocation. Clients may have seen one that
// ran: a new, empty runner must not appear in its place.
func (a *Allocation) replaceable() bool {
	return a.Status == runtime.AllocationLost && a.RunningAt.IsZero()
}
