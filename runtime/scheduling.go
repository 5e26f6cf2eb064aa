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

// An Evaluation is one decision of a cluster's scheduler: to place a runner or to stop it. It is
// kept for display only.
type Evaluation struct {
	ID            EvaluationID
	Type          EvaluationType
	RunnerID      RunnerID      // "" means not about a single runner
	EnvironmentID EnvironmentID // "" not about a single environment
	Priority      int
	Trigger       EvaluationTrigger
	Status        EvaluationStatus
	Reason        string     // why it is BLOCKED, FAILED or CANCELLED
	Shortages     []Shortage // of a BLOCKED one, in numbers
	Queued        int        // runners that it could not place
	PreviousID    EvaluationID
	NextID        EvaluationID
	URL           string // of the cluster's own page about it; "" means none

	CreatedAt  time.Time
	WaitUntil  time.Time // not dequeued before; the zero time means no delay
	DequeuedAt time.Time // last time it was dequeued; the zero time means never
	EndedAt    time.Time // the zero time means not ended
}

// An EvaluationType is the purpose of an evaluation.
type EvaluationType string

// The types.
const (
	EvaluationPlace   EvaluationType = "PLACE"
	EvaluationStop    EvaluationType = "STOP"
	EvaluationCollect EvaluationType = "COLLECT" // records of ended objects are removed
)

// An EvaluationTrigger is the event that created an evaluation.
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

// An EvaluationStatus says where an evaluation is in its life. It only moves forward: PENDING,
// BLOCKED, then one of the others. BLOCKED may be skipped.
type EvaluationStatus string

// The statuses.
const (
	EvaluationPending   EvaluationStatus = "PENDING"
	EvaluationBlocked   EvaluationStatus = "BLOCKED" // it waits for room
	EvaluationComplete  EvaluationStatus = "COMPLETE"
	EvaluationFailed    EvaluationStatus = "FAILED"    // given up
	EvaluationCancelled EvaluationStatus = "CANCELLED" // no longer needed
)

// Ended reports whether the status is final.
func (s EvaluationStatus) Ended() bool {
	return s != EvaluationPending && s != EvaluationBlocked
}

// Waited returns how long an evaluation waited for its turn or for room: until it was last
// dequeued, until it ended without that, or until now.
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

// Worked returns how long the work on an ended evaluation took. It returns false for one that
// hasn't ended, or that ended without any work.
func (e Evaluation) Worked() (time.Duration, bool) {
	if e.EndedAt.IsZero() || !e.taken() {
		return 0, false
	}
	return e.EndedAt.Sub(e.DequeuedAt), true
}

// taken reports whether e itself was dequeued. An evaluation that was created BLOCKED copies the
// time of the one that it continues, which is before its own creation.
func (e Evaluation) taken() bool { return !e.DequeuedAt.Before(e.CreatedAt) }

// A Shortage says what an unplaced runner lacks in one dimension, in MHz, MiB, or processes.
type Shortage struct {
	Dimension Dimension
	Wanted    int64
	Free      int64
	Kept      int64 // reserved for runners that go first
	Capacity  int64 // that can be promised in total
}

// A Dimension is one kind of a machine's resources.
type Dimension string

// The dimensions.
const (
	DimensionCPU       Dimension = "CPU"
	DimensionMemory    Dimension = "MEMORY"
	DimensionProcesses Dimension = "PROCESSES"
	DimensionWorkspace Dimension = "WORKSPACE"
)

// An Allocation is a runner's reservation of a machine's resources. It is kept for display only.
type Allocation struct {
	ID            AllocationID
	RunnerID      RunnerID
	EnvironmentID EnvironmentID
	EvaluationID  EvaluationID // that placed it; "" means an earlier server placed it
	Resources     Resources
	Desired       DesiredState
	Status        AllocationStatus
	Message       string // why it FAILED or is LOST

	CreatedAt time.Time
	RunningAt time.Time // the zero time means it never ran
	EndedAt   time.Time // the zero time means not ended
}

// A DesiredState says whether an allocation is to run or to stop.
type DesiredState string

// The desired states.
const (
	DesiredRun  DesiredState = "RUN"
	DesiredStop DesiredState = "STOP"
)

// An AllocationStatus says where an allocation is in its life. It only moves forward, and may
// skip RUNNING.
type AllocationStatus string

// The statuses. The last three are final and use no room.
const (
	AllocationPending  AllocationStatus = "PENDING"
	AllocationRunning  AllocationStatus = "RUNNING"
	AllocationComplete AllocationStatus = "COMPLETE"
	AllocationFailed   AllocationStatus = "FAILED"
	AllocationLost     AllocationStatus = "LOST"
)

// Ended reports whether the status is final, so that nothing of the allocation is left.
func (s AllocationStatus) Ended() bool {
	return s == AllocationComplete || s == AllocationFailed || s == AllocationLost
}

// A SchedulingFilter selects a page of evaluations or of allocations. Zero fields select all.
type SchedulingFilter[Status ~string] struct {
	RunnerID      RunnerID
	EnvironmentID EnvironmentID
	Statuses      []Status
	After         string // an id: only those that sort before it (the order is newest first)
	Limit         int    // most results; 0 means no limit
}

// Matches reports whether f selects an object of this runner and environment with this status.
func (f SchedulingFilter[Status]) Matches(runner RunnerID, env EnvironmentID, status Status) bool {
	return (f.RunnerID == "" || f.RunnerID == runner) && (f.EnvironmentID == "" || f.EnvironmentID == env) &&
		(len(f.Statuses) == 0 || slices.Contains(f.Statuses, status))
}

// Paginate returns f's page of all, and the number of elements of all. all must contain exactly what f
// selects, in descending order of id.
func Paginate[T any, Status ~string](all iter.Seq[T], f SchedulingFilter[Status], id func(T) string) (page []T, total int) {
	for row := range all {
		total++
		if (f.After == "" || id(row) < f.After) && (f.Limit == 0 || len(page) < f.Limit) {
			page = append(page, row)
		}
	}
	return page, total
}

// An EvaluationFilter selects a page of evaluations.
type EvaluationFilter = SchedulingFilter[EvaluationStatus]

// An AllocationFilter selects a page of allocations.
type AllocationFilter = SchedulingFilter[AllocationStatus]

// A TaskEvent is an event in a runner's life, for people. It contains no secret and no detail of
// a machine.
type TaskEvent struct {
	At     time.Time
	Kind   TaskEventKind
	Detail string // what Kind doesn't say: an exit code, a reason; often ""
}

// KeptTaskEvents is how many events are kept of each runner: the latest ones.
const KeptTaskEvents = 10

// A TaskEventKind is the kind of an event.
type TaskEventKind string

// The kinds, roughly in the order of a runner's life.
const (
	TaskPlaced        TaskEventKind = "PLACED"
	TaskPreparing     TaskEventKind = "PREPARING"
	TaskFetching      TaskEventKind = "FETCHING"
	TaskStarted       TaskEventKind = "STARTED"
	TaskReady         TaskEventKind = "READY"
	TaskStartFailed   TaskEventKind = "START_FAILED"
	TaskRestarting    TaskEventKind = "RESTARTING"
	TaskRestored      TaskEventKind = "RESTORED"
	TaskExited        TaskEventKind = "EXITED"
	TaskOutOfMemory   TaskEventKind = "OUT_OF_MEMORY"
	TaskGone          TaskEventKind = "GONE"
	TaskStopping      TaskEventKind = "STOPPING"
	TaskForced        TaskEventKind = "FORCED"
	TaskRemovalFailed TaskEventKind = "REMOVAL_FAILED"
	TaskEnded         TaskEventKind = "ENDED"
	TaskOther         TaskEventKind = "OTHER"
)

var sentences = map[TaskEventKind]string{
	TaskPlaced:        "It was placed on a machine",
	TaskPreparing:     "Its sandbox is being prepared",
	TaskFetching:      "Its image or its agent is being fetched",
	TaskStarted:       "Its first process was started",
	TaskReady:         "Its agent answered, so it can be claimed",
	TaskStartFailed:   "It could not be started",
	TaskRestarting:    "It is being restarted",
	TaskRestored:      "It kept running while no server was connected",
	TaskExited:        "Its agent exited",
	TaskOutOfMemory:   "It ran out of memory, and its agent was killed",
	TaskGone:          "It is gone",
	TaskStopping:      "It is being stopped",
	TaskForced:        "It didn't stop in time and was killed",
	TaskRemovalFailed: "It could not be removed completely; the server retries",
	TaskEnded:         "All its processes have ended",
	TaskOther:         "Another event",
}

// Message describes the event in one sentence.
func (e TaskEvent) Message() string {
	if e.Detail == "" {
		return sentences[e.Kind] + "."
	}
	return sentences[e.Kind] + ": " + e.Detail + "."
}
