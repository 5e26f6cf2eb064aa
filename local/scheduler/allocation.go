package scheduler

import (
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// An Allocation is a runner's place on this machine. It takes room from the
// plan that made it until who runs it says that it ended, stopping included.
type Allocation struct {
	ID          runtime.AllocationID
	Job         runtime.RunnerID
	Environment runtime.EnvironmentID
	Evaluation  runtime.EvaluationID // that placed it; "" for one that was restored
	Resources   runtime.Resources
	Desired     runtime.DesiredState     // the scheduler's
	Status      runtime.AllocationStatus // who runs it says so
	Message     string                   // of who runs it

	CreateIndex  uint64
	ModifyIndex  uint64
	DesiredIndex uint64 // when Desired changed
	CreatedAt    time.Time
	RunningAt    time.Time // zero: it never ran
	EndedAt      time.Time // zero: it hasn't
}

var allocationOrder = []runtime.AllocationStatus{runtime.AllocationPending, runtime.AllocationRunning, runtime.AllocationComplete, runtime.AllocationFailed, runtime.AllocationLost}

// advance returns a moved forward to status, and whether that is a move. It is
// the only place that changes an allocation's status.
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

// replaceable reports whether a's job may get another allocation. One that ran
// was seen by others: an empty one in its place would lie to them.
func (a *Allocation) replaceable() bool {
	return a.Status == runtime.AllocationLost && a.RunningAt.IsZero()
}
