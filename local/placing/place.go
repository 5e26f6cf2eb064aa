package placing

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
)

// A Place is one runner's registration and allocation, until the runner is removed. Its methods are
// safe for concurrent use.
type Place struct {
	*fairqueue.Waiter                  // the turns of its starts, at the priority that was requested last
	Task              *taskrunner.Task // set before Register

	p          *Placer
	id         runtime.RunnerID
	env        runtime.Environment
	registered time.Time
	held       func(context.Context) (bool, error)

	// The fields below are guarded by Placer.mu.
	allocation runtime.AllocationID // "": none yet
	handed     bool                 // its task was handed over, or ended
	lost       bool                 // the runner had ended when this server started
	restored   scheduler.Allocation // the allocation that an earlier server gave it
}

// Place returns a runner's place, which isn't registered yet. held must report whether the runner
// is claimed, including by a claim that is being stored.
func (p *Placer) Place(r runtime.Runner, priority runtime.Priority, held func(context.Context) (bool, error)) *Place {
	return &Place{Waiter: p.Gate.Waiter(r.Environment.Tenant, string(r.Environment.ID), priority), p: p, id: r.ID, env: r.Environment, registered: r.CreatedAt, held: held}
}

// Check returns INVALID_INPUT for a runner that can't be registered.
func Check(r runtime.Runner) error { return jobOf(r.ID, r.Environment, runtime.PriorityRefill).Check() }

// jobOf returns the scheduler's job for a runner.
func jobOf(id runtime.RunnerID, env runtime.Environment, priority runtime.Priority) scheduler.Job {
	return scheduler.Job{ID: id, Tenant: env.Tenant, Environment: env.ID, Resources: sandbox.Footprint(env), Priority: priority}
}

func (l *Place) job() scheduler.Job { return jobOf(l.id, l.env, l.Priority()) }

// Register registers the runner with the scheduler, or changes its priority if it is registered.
func (l *Place) Register() error {
	l.p.mu.Lock()
	l.p.places[l.id] = l
	l.p.mu.Unlock()
	return l.p.Scheduler.Register(l.job())
}

// Deregister ends the runner. With an allocation it ends when the scheduler orders it; without one
// its task ends without having started.
func (l *Place) Deregister() {
	if !l.p.Scheduler.Deregister(l.id) {
		l.Task.Stop(taskrunner.End{})
		l.HandOver()
	}
}

// RestoreAllocation records, before Restore, that an earlier server had placed the runner. running:
// the runner had become ready.
func (l *Place) RestoreAllocation(running bool) {
	l.allocation = runtime.AllocationID(l.id) // the runner's id sorts before this server's allocations
	l.restored = scheduler.Allocation{ID: l.allocation, Job: l.id, Environment: l.env.ID, Resources: sandbox.Footprint(l.env), Status: runtime.AllocationPending}
	if running {
		l.restored.Status, l.restored.RunningAt = runtime.AllocationRunning, time.Now()
	}
}

// MarkLost ends the registration of an earlier server's runner that has ended. Only its pool may
// request a new one. Its allocation is LOST once Free reports that nothing of it runs.
func (l *Place) MarkLost() {
	l.p.mu.Lock()
	l.lost = true
	l.p.mu.Unlock()
	if l.Allocated() {
		l.p.Scheduler.Deregister(l.id)
	}
}

// Forget removes the place: the runner was removed.
func (l *Place) Forget() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.p.places[l.id] == l {
		delete(l.p.places, l.id)
	}
}

// HandOver hands the runner's task over to be run; the first call counts. See Placed.
func (l *Place) HandOver() {
	l.p.mu.Lock()
	if !l.handed {
		l.handed = true
		l.p.placed = append(l.p.placed, l)
	}
	l.p.mu.Unlock()
	select {
	case l.p.wake <- struct{}{}:
	default:
	}
}

// MarkEnded records that the runner's task is dead, so that it is never handed over.
func (l *Place) MarkEnded() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.handed = true
}

// Waits reports whether the runner's task hasn't been handed over yet.
func (l *Place) Waits() bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return !l.handed
}

// Reason returns why the runner isn't placed yet; "": it only waits for its turn.
func (l *Place) Reason() string { return l.p.Scheduler.Reason(l.id) }

// Lacks returns the room that the runner waits for, beyond what is free.
func (l *Place) Lacks() runtime.Resources { return l.p.Scheduler.Lacks(l.id) }

// Allocated reports whether the runner has an allocation.
func (l *Place) Allocated() bool { return l.allocated() != "" }

// allocated returns the id of the runner's allocation; "": it has none yet.
func (l *Place) allocated() runtime.AllocationID {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.allocation
}

// Running reports to the scheduler that the runner is ready.
func (l *Place) Running() { l.p.report(l.id, l.allocated(), runtime.AllocationRunning, "") }

// Free reports to the scheduler that the runner has ended and uses no room. intended: its end was
// requested; else message says why it ended.
func (l *Place) Free(intended bool, message string) {
	l.p.mu.Lock()
	id, status := l.allocation, runtime.AllocationFailed
	switch {
	case l.lost:
		status, message = runtime.AllocationLost, "it had ended when the server restarted"
	case intended:
		status, message = runtime.AllocationComplete, ""
	}
	l.p.mu.Unlock()
	l.p.report(l.id, id, status, message)
}
