package scheduler

import (
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Job is a runner to be registered.
type Job struct {
	ID          runtime.RunnerID
	Tenant      runtime.TenantID // of the environment
	Environment runtime.EnvironmentID
	Resources   runtime.Resources
	Priority    runtime.Priority // 1 to 99; changed by registering again
}

// Priorities of evaluations that aren't placements. Stops free room for others.
const priorityStop, priorityCollect runtime.Priority = 100, 1

// Check returns INVALID_INPUT for the first field that is out of range.
func (j Job) Check() error {
	switch {
	case j.ID == "":
		return runtime.Invalid("id", "must be a runner's id, of at least 1 byte")
	case j.Environment == "":
		return runtime.Invalid("environment", "must be an environment's id, of at least 1 byte")
	}
	if err := runtime.Between("priority", int64(j.Priority), 1, int64(priorityStop)-1, "(a priority)"); err != nil {
		return err
	}
	return checkResources("resources", j.Resources)
}

// A job is a registered runner, with its allocations and evaluations. Scheduler.mu guards it.
type job struct {
	Job
	number     uint64 // counts registrations, which orders evaluations by age
	stopped    bool   // it was deregistered
	endedAt    time.Time
	allocation *runtime.Allocation // nil until it is placed

	held    *evaluation // with a worker
	next    *evaluation // ready, delayed, or pending until held is acked or nacked
	blocked *evaluation // waits for room; once it is woken, it is also next or held
	awake   bool        // blocked was woken, and has been neither blocked again nor placed
	failed  bool        // its last evaluation failed, and no newer one is ready yet
}

// live returns the allocation that hasn't ended, or nil.
func (j *job) live() *runtime.Allocation {
	if j.allocation != nil && !j.allocation.Status.Ended() {
		return j.allocation
	}
	return nil
}

// unplaced reports whether the runner is wanted and has had no allocation. Clients may have seen the
// runner of an ended one: a new, empty runner must not appear in its place.
func (j *job) unplaced() bool { return !j.stopped && j.allocation == nil }

// allocationOrder is the order in which an allocation's status moves; it never moves back.
var allocationOrder = []runtime.AllocationStatus{runtime.AllocationPending, runtime.AllocationRunning, runtime.AllocationComplete, runtime.AllocationFailed, runtime.AllocationLost}

// advance moves an allocation forward to a status, and reports whether it did. It is the only
// function that changes the status.
func advance(a *runtime.Allocation, to runtime.AllocationStatus, message string, now time.Time) bool {
	if a.Status.Ended() || slices.Index(allocationOrder, a.Status) >= slices.Index(allocationOrder, to) {
		return false
	}
	a.Status, a.Message = to, message
	if to == runtime.AllocationRunning {
		a.RunningAt = now
	} else {
		a.EndedAt = now
	}
	return true
}

// An evaluation is the work of bringing one job to what is wanted, or a record of work that needed
// no worker. The package comment draws its life. Scheduler.mu guards it.
type evaluation struct {
	runtime.Evaluation
	job        *job // nil in a collection's
	deliveries int
	token      uint64      // while held; else 0
	timer      *time.Timer // while held, it nacks; while delayed, it makes the evaluation ready
	ready      bool        // it is in Scheduler.ready
}

// end ends e, unless it has ended. It is the only function that ends an evaluation.
func (e *evaluation) end(status runtime.EvaluationStatus, reason string, now time.Time) {
	if e.Status.Ended() {
		return
	}
	e.Status, e.EndedAt, e.Reason = status, now, reason
	if status == runtime.EvaluationComplete {
		e.Shortages, e.Queued = nil, 0
	}
}
