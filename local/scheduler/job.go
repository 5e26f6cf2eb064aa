package scheduler

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Job is the wish for one runner. Its first five fields are the wish; the
// scheduler sets the others.
type Job struct {
	ID          runtime.RunnerID
	Tenant      runtime.TenantID // of the environment
	Environment runtime.EnvironmentID
	Resources   runtime.Resources
	Priority    runtime.Priority // 1 to 99; changed by registering again

	Stopped     bool // the runner isn't wanted any more
	Status      JobStatus
	CreateIndex uint64
	ModifyIndex uint64
	CreatedAt   time.Time
	EndedAt     time.Time // zero until it is DEAD
}

// A JobStatus follows from a job's wish and its allocations.
type JobStatus string

// The statuses of a job. One that is PENDING again lost its allocation before
// that ran.
const (
	JobPending JobStatus = "PENDING" // wanted, not placed
	JobRunning JobStatus = "RUNNING" // it has an allocation that hasn't ended
	JobDead    JobStatus = "DEAD"    // nothing of it will run any more
)

// Check returns INVALID_INPUT for the first field of a wish that is out of its
// range.
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

// statusOf says what a job's status is, given all of its allocations.
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
