package scheduler

import (
	"fmt"

	"github.com/rockpool/rockpool/runtime"
)

// Register registers a runner. Registering a known one again is success: it only changes the
// priority, unless the runner is placed. A deregistered runner stays so. INVALID_INPUT names the
// first field of job that is out of range.
func (s *Scheduler) Register(job Job) error {
	if err := job.Check(); err != nil {
		return err
	}
	var e *Evaluation
	s.state.write(func(w *write) {
		wished := Job{ID: job.ID, Tenant: job.Tenant, Environment: job.Environment, Resources: job.Resources, Priority: job.Priority}
		if known := w.job(job.ID); known != nil {
			if known.Status != JobPending || known.Priority == job.Priority {
				return
			}
			wished = *known
			wished.Priority = job.Priority
		}
		e = evaluate(w.putJob(wished), runtime.TriggerRegister)
		w.putEvaluation(e)
	})
	if e != nil {
		s.broker.enqueue(e)
	}
	return nil
}

// Deregister ends a runner's registration; an unknown runner is success. Once it has returned,
// nothing new is placed for the runner. It reports whether the runner has an allocation that hasn't
// ended: an order to stop it follows.
func (s *Scheduler) Deregister(id runtime.RunnerID) (placed bool) {
	var e *Evaluation
	s.state.write(func(w *write) {
		known := w.job(id)
		if known == nil {
			return
		}
		for _, a := range w.allocations(id) {
			placed = placed || !a.Status.Ended()
		}
		if known.Stopped {
			return
		}
		stopped := *known
		stopped.Stopped = true
		stored := w.putJob(stopped)
		// Nothing is left to stop.
		if known.Status == JobDead {
			return
		}
		e = evaluate(stored, runtime.TriggerDeregister)
		w.putEvaluation(e)
	})
	if e != nil {
		s.broker.enqueue(e)
	}
	return placed
}

// Update reports the status of an allocation. A status only moves forward: a repeated or late
// report is success and changes nothing. An ended allocation frees its room. RUNNER_GONE: the
// allocation is unknown.
func (s *Scheduler) Update(id runtime.AllocationID, status runtime.AllocationStatus, message string) error {
	var e *Evaluation
	known, ended := false, false
	s.state.write(func(w *write) {
		before := w.allocation(id)
		if known = before != nil; !known {
			return
		}
		after, ok := before.advance(status, message, w.now)
		if !ok {
			return
		}
		w.putAllocation(before, after)
		ended = after.Status.Ended()
		if job := w.job(after.Job); job != nil && !job.Stopped && after.replaceable() {
			e = evaluate(job, runtime.TriggerAllocationLost)
			w.putEvaluation(e)
		}
	})
	if !known {
		return runtime.Errorf(runtime.CodeRunnerGone, "allocation %s doesn't exist", id)
	}
	if e != nil {
		s.broker.enqueue(e)
	}
	if ended {
		s.blocked.wakeFitting()
	}
	return nil
}

// Restore takes over the jobs and allocations that the last server left, allocations as PENDING or
// RUNNING. It is called once. A job without an allocation is placed again. Evaluations are
// delivered afterwards, but nothing is placed before [Scheduler.Restored]: the caller first finds
// out which allocations are alive, and reports the others with Update. INVALID_INPUT names the
// wrong element; then nothing is taken over.
func (s *Scheduler) Restore(jobs []Job, allocations []Allocation) error {
	known := make(map[runtime.RunnerID]Job, len(jobs))
	for i, job := range jobs {
		if err := job.Check(); err != nil {
			return fmt.Errorf("restore job %d: %w", i, err)
		}
		known[job.ID] = job
	}
	for i, a := range allocations {
		if _, ok := known[a.Job]; !ok || a.ID == "" || a.Status.Ended() {
			return runtime.Invalid(fmt.Sprintf("allocations.%d", i), "must have an id and a job that is restored too, and must not have ended")
		}
	}
	var evaluations []*Evaluation
	s.state.write(func(w *write) {
		for _, job := range jobs {
			w.putJob(Job{ID: job.ID, Tenant: job.Tenant, Environment: job.Environment, Resources: job.Resources, Priority: job.Priority, Stopped: job.Stopped})
		}
		for _, a := range allocations {
			job := w.job(a.Job)
			w.putAllocation(nil, &Allocation{
				ID: a.ID, Job: a.Job, Environment: job.Environment, Resources: job.Resources,
				Desired: runtime.DesiredRun, Status: a.Status, Message: a.Message, RunningAt: a.RunningAt,
			})
		}
		for _, job := range jobs {
			stored := w.job(job.ID)
			if stored.Status == JobPending || stored.Stopped && stored.Status != JobDead {
				e := evaluate(stored, runtime.TriggerRestore)
				w.putEvaluation(e)
				evaluations = append(evaluations, e)
			}
		}
	})
	for _, e := range evaluations {
		s.broker.enqueue(e)
	}
	// Evaluations are delivered from here on, but the planner applies no plan before Restored.
	s.broker.enable()
	return nil
}

// Restored lets runners be placed, from now on.
func (s *Scheduler) Restored() { s.planner.enable() }
