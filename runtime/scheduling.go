package runtime

import (
	"iter"
	"slices"
	"time"
)

// An EvaluationID names an evaluation; ids made later sort later.
type EvaluationID string

// An AllocationID names an allocation; it sorts like an [EvaluationID].
type AllocationID string

// An Evaluation is the work of a cluster's scheduler on one change of what is
// wanted: that a runner get its place, or lose it. It is here to be shown.
type Evaluation struct {
	ID            EvaluationID
	Type          EvaluationType
	RunnerID      RunnerID      // "": it is about no single runner
	EnvironmentID EnvironmentID // "" likewise
	Priority      int
	Trigger       EvaluationTrigger
	Status        EvaluationStatus
	Reason        string     // why it is BLOCKED, FAILED or CANCELLED
	Shortages     []Shortage // the same of a BLOCKED one, in figures
	Queued        int        // runners that it could not place
	PreviousID    EvaluationID
	NextID        EvaluationID
	URL           string // where the cluster's own pages show it; "": nowhere

	CreatedAt  time.Time
	WaitUntil  time.Time // it isn't to be taken up before; zero: at once
	DequeuedAt time.Time // it was taken up, the last time; zero: it wasn't yet
	EndedAt    time.Time // zero: it hasn't
}

// An EvaluationType says what an evaluation is to achieve.
type EvaluationType string

// The types.
const (
	EvaluationPlace   EvaluationType = "PLACE"
	EvaluationStop    EvaluationType = "STOP"
	EvaluationCollect EvaluationType = "COLLECT" // what has ended is forgotten
)

// An EvaluationTrigger says what made an evaluation.
type EvaluationTrigger string

// The triggers.
const (
	TriggerRegister       EvaluationTrigger = "REGISTER"
	TriggerDeregister     EvaluationTrigger = "DEREGISTER"
	TriggerRestore        EvaluationTrigger = "RESTORE"
	TriggerAllocationLost EvaluationTrigger = "ALLOCATION_LOST"
	TriggerNoRoom         EvaluationTrigger = "NO_ROOM"
	TriggerFailedFollowUp EvaluationTrigger = "FAILED_FOLLOW_UP"
	TriggerInterval       EvaluationTrigger = "INTERVAL"
	TriggerNodeChanged    EvaluationTrigger = "NODE_CHANGED"
	TriggerPreempted      EvaluationTrigger = "PREEMPTED"
	TriggerOther          EvaluationTrigger = "OTHER"
)

// An EvaluationStatus is where an evaluation is in its life. It only moves
// forward: PENDING, BLOCKED, then one of the others.
type EvaluationStatus string

// The statuses.
const (
	EvaluationPending   EvaluationStatus = "PENDING"
	EvaluationBlocked   EvaluationStatus = "BLOCKED" // it waits for room
	EvaluationComplete  EvaluationStatus = "COMPLETE"
	EvaluationFailed    EvaluationStatus = "FAILED"    // given up
	EvaluationCancelled EvaluationStatus = "CANCELLED" // needless
)

// Ended reports whether nothing more happens to an evaluation.
func (s EvaluationStatus) Ended() bool {
	return s != EvaluationPending && s != EvaluationBlocked
}

// Waited returns how long an evaluation waited for its turn or for room: until
// it was taken up for the last time, until it ended without, or until now.
func (e Evaluation) Waited(now time.Time) time.Duration {
	switch {
	case e.EndedAt.IsZero():
		return max(now.Sub(e.CreatedAt), 0)
	case e.taken():
		return e.DequeuedAt.Sub(e.CreatedAt)
	default:
		return max(e.EndedAt.Sub(e.CreatedAt), 0)
	}
}

// Worked returns how long the work on an evaluation took that has ended, and
// false for one that hasn't, or ended without any.
func (e Evaluation) Worked() (time.Duration, bool) {
	if e.EndedAt.IsZero() || !e.taken() {
		return 0, false
	}
	return e.EndedAt.Sub(e.DequeuedAt), true
}

// taken reports whether e itself was taken up: one that was made BLOCKED has the
// time of the one that it goes on for.
func (e Evaluation) taken() bool { return !e.DequeuedAt.Before(e.CreatedAt) }

// A Shortage says what a runner that isn't placed lacks, in one dimension: MHz,
// MiB, or a number of processes.
type Shortage struct {
	Dimension Dimension
	Wanted    int64
	Free      int64
	Kept      int64 // for runners that go first
	Capacity  int64 // that can be promised in all
}

// A Dimension is one of the things that runners take from a machine.
type Dimension string

// The dimensions.
const (
	DimensionCPU       Dimension = "CPU"
	DimensionMemory    Dimension = "MEMORY"
	DimensionProcesses Dimension = "PROCESSES"
	DimensionWorkspace Dimension = "WORKSPACE"
)

// An Allocation is a runner's place on a machine. It is here to be shown.
type Allocation struct {
	ID            AllocationID
	RunnerID      RunnerID
	EnvironmentID EnvironmentID
	EvaluationID  EvaluationID // that placed it; "": one of an earlier server
	Resources     Resources
	Desired       DesiredState
	Status        AllocationStatus
	Message       string // why it FAILED or is LOST

	CreatedAt time.Time
	RunningAt time.Time // zero: it never ran
	EndedAt   time.Time // zero: it hasn't
}

// A DesiredState is what is to become of an allocation.
type DesiredState string

// The two.
const (
	DesiredRun  DesiredState = "RUN"
	DesiredStop DesiredState = "STOP"
)

// An AllocationStatus is where an allocation is in its life. It only moves
// forward, and may skip RUNNING.
type AllocationStatus string

// The statuses; what has one of the last three takes no room.
const (
	AllocationPending  AllocationStatus = "PENDING"
	AllocationRunning  AllocationStatus = "RUNNING"
	AllocationComplete AllocationStatus = "COMPLETE"
	AllocationFailed   AllocationStatus = "FAILED"
	AllocationLost     AllocationStatus = "LOST"
)

// Ended reports whether there is nothing of an allocation any more.
func (s AllocationStatus) Ended() bool {
	return s == AllocationComplete || s == AllocationFailed || s == AllocationLost
}

// A SchedulingFilter asks for a page of evaluations or of allocations. Zero
// fields pick all.
type SchedulingFilter[Status ~string] struct {
	RunnerID      RunnerID
	EnvironmentID EnvironmentID
	Statuses      []Status
	After         string // an id: only those that sort before it, since the youngest come first
	Limit         int    // at most so many; 0: no limit
}

// Picks reports whether f picks what is of a runner and an environment, and has a
// status.
func (f SchedulingFilter[Status]) Picks(runner RunnerID, env EnvironmentID, status Status) bool {
	return (f.RunnerID == "" || f.RunnerID == runner) && (f.EnvironmentID == "" || f.EnvironmentID == env) &&
		(len(f.Statuses) == 0 || slices.Contains(f.Statuses, status))
}

// Cut returns the page that f asks for of all that it picks, which come in
// falling order of their ids, and their number.
func Cut[T any, Status ~string](all iter.Seq[T], f SchedulingFilter[Status], id func(T) string) (page []T, total int) {
	for row := range all {
		total++
		if (f.After == "" || id(row) < f.After) && (f.Limit == 0 || len(page) < f.Limit) {
			page = append(page, row)
		}
	}
	return page, total
}

// An EvaluationFilter asks for a page of evaluations.
type EvaluationFilter = SchedulingFilter[EvaluationStatus]

// An AllocationFilter asks for a page of allocations.
type AllocationFilter = SchedulingFilter[AllocationStatus]
