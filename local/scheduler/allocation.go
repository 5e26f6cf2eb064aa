package scheduler

import (
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// AllocationID names an allocation; ids made later sort later.
type AllocationID string

// An Allocation is a runner's place on this machine. It takes room from the
// plan that made it until who runs it says that it ended, stopping included.
type Allocation struct {
	ID          AllocationID
	Job         runtime.RunnerID
	Environment runtime.EnvironmentID
	Evaluation  EvaluationID // that placed it; "" for one that was restored
	Resources   runtime.Resources
	Desired     Desired          // the scheduler's
	Status      AllocationStatus // who runs it says so
	Message     string           // of who runs it

	CreateIndex  uint64
	ModifyIndex  uint64
	DesiredIndex uint64 // when Desired changed
	CreatedAt    time.Time
	RunningAt    time.Time // zero: it never ran
	EndedAt      time.Time // zero: it hasn't
}

// Desired is what is to be done with an allocation. It goes from RUN to STOP.
type Desired string

// The two.
const (
	DesiredRun  Desired = "RUN"
	DesiredStop Desired = "STOP" // end it if it hasn't, and remove what is left of it
)

// An AllocationStatus only moves forward:
//
//	PENDING → RUNNING → COMPLETE, FAILED or LOST
//	    └─────────────────────┘
type AllocationStatus string

// The statuses. What has ended takes no room.
const (
	AllocationPending  AllocationStatus = "PENDING"  // placed; its agent hasn't answered yet
	AllocationRunning  AllocationStatus = "RUNNING"  // its agent answered
	AllocationComplete AllocationStatus = "COMPLETE" // it ended because it was to
	AllocationFailed   AllocationStatus = "FAILED"   // it ended by itself, or could not be started
	AllocationLost     AllocationStatus = "LOST"     // it wasn't there after a restart; one that never ran is placed again
)

// Ended reports whether there is nothing of an allocation any more.
func (s AllocationStatus) Ended() bool {
	return s == AllocationComplete || s == AllocationFailed || s == AllocationLost
}

var allocationOrder = []AllocationStatus{AllocationPending, AllocationRunning, AllocationComplete, AllocationFailed, AllocationLost}

// advance returns a moved forward to status, and whether that is a move. It is
// the only place that changes an allocation's status.
func (a Allocation) advance(status AllocationStatus, message string, now time.Time) (*Allocation, bool) {
	if a.Status.Ended() || slices.Index(allocationOrder, a.Status) >= slices.Index(allocationOrder, status) {
		return nil, false
	}
	a.Status, a.Message = status, message
	if status == AllocationRunning {
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
	return a.Status == AllocationLost && a.RunningAt.IsZero()
}
