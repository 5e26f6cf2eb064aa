package scheduler

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Job is a registered runner. The caller of Register sets the first five fields; the scheduler
// sets the others.
type Job struct {
	ID          runtime.RunnerID
	Tenant      runtime.TenantID // of the environment
	Environment runtime.EnvironmentID
	Resources   runtime.Resources
	Priority    runtime.Priority // 1 to 99; changed by registering again

	Stopped     bool // Deregister was called
	Status      JobStatus
	CreateIndex uint64
	ModifyIndex uint64
	CreatedAt   time.Time
	EndedAt     time.Time // zero until it is DEAD
}

// A JobStatus is derived from a job and its allocations.
type JobStatus string

// The statuses of a job. A job is PENDING again if its allocation was lost before it ran.
const (
	JobPending JobStatus = "PENDING" // wanted, and not placed
	JobRunning JobStatus = "RUNNING" // it has an allocation that hasn't ended
	JobDead    JobStatus = "DEAD"    // it will never run again
)

// Check returns INVALID_INPUT for the first of the caller's fields that is out of range.
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

// statusOf derives a job's status from all of its allocations.
func (j *Job) statusOf(allocations []*Allocation) JobStatus {
	over := j.Stopped
	for _, a := range allocations {
		if !a.Status.Ended() {
			return JobRunning
		}
		over = over || !a.replaceable()
	}
	if over {
		return JobDead
	}
	return JobPending
}
