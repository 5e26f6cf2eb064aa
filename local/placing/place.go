package placing

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/turns"
)

// A Place is one runner's, from the wish for it until it is forgotten.
type Place struct {
	*turns.Pass                  // for the runner's starts, with the priority that it was asked for with last
	Task        *taskrunner.Task // set before the place is wished for

	p      *Placer
	id     runtime.RunnerID
	env    runtime.Environment
	wished time.Time
	held   func(context.Context) (bool, error)

	// Guarded by Placer.mu.
	allocation runtime.AllocationID // "": it has none yet
	handed     bool                 // its task is led
	lost       bool                 // the runner wasn't there when this server came
	restored   scheduler.Allocation // as an earlier server left it
}

// Place returns the place of a runner, which isn't wished for yet. Held reports whether
// somebody holds the runner, a claim that is being stored included.
func (p *Placer) Place(r runtime.Runner, priority runtime.Priority, held func(context.Context) (bool, error)) *Place {
	return &Place{Pass: p.Gate.Pass(r.Environment, priority), p: p, id: r.ID, env: r.Environment, wished: r.CreatedAt, held: held}
}

// Check returns INVALID_INPUT for a runner that can't be wished for.
func Check(r runtime.Runner) error { return wish(r.ID, r.Environment, runtime.PriorityRefill).Check() }

func wish(id runtime.RunnerID, env runtime.Environment, priority runtime.Priority) scheduler.Job {
	return scheduler.Job{ID: id, Tenant: env.Tenant, Environment: env.ID, Resources: sandbox.Takes(env), Priority: priority}
}

func (l *Place) job() scheduler.Job { return wish(l.id, l.env, l.Priority()) }

// Wish asks the scheduler for the place, or again with another priority.
func (l *Place) Wish() error {
	l.p.mu.Lock()
	l.p.places[l.id] = l
	l.p.mu.Unlock()
	return l.p.Scheduler.Register(l.job())
}

// Unwish lets a runner end. One that has its place ends when the scheduler orders it;
// one that has none ends without ever having been made.
func (l *Place) Unwish() {
	if !l.p.Scheduler.Deregister(l.id) {
		l.Task.Stop(taskrunner.End{})
		l.HandOver()
	}
}

// Found says, before Restore, that an earlier server had given the runner its place;
// running: its agent had answered.
func (l *Place) Found(running bool) {
	l.allocation = runtime.AllocationID(l.id) // sorts before those of this server
	l.restored = scheduler.Allocation{ID: l.allocation, Job: l.id, Environment: l.env.ID, Resources: sandbox.Takes(l.env), Status: runtime.AllocationPending}
	if running {
		l.restored.Status, l.restored.RunningAt = runtime.AllocationRunning, time.Now()
	}
}

// Lose takes back the wish for a runner of an earlier server that isn't there any
// more. Only its pool may wish for another one, and its room is free when nothing of
// it runs.
func (l *Place) Lose() {
	l.p.mu.Lock()
	l.lost = true
	l.p.mu.Unlock()
	if l.Allocated() {
		l.p.Scheduler.Deregister(l.id)
	}
}

// Forget says that the runner was removed.
func (l *Place) Forget() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.p.places[l.id] == l {
		delete(l.p.places, l.id)
	}
}

// HandOver lets the runner's task be led, once. See Placed.
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

// Ended says that the runner's task is dead, and is never led.
func (l *Place) Ended() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.handed = true
}

// Waits reports whether the runner's task isn't led yet.
func (l *Place) Waits() bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return !l.handed
}

// Reason says what a runner that waits for its place lacks; "" if that is only its
// turn.
func (l *Place) Reason() string { return l.p.Scheduler.Reason(l.id) }

// Allocated reports whether the runner has its place.
func (l *Place) Allocated() bool { return l.allocated() != "" }

func (l *Place) allocated() runtime.AllocationID {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.allocation
}

// Running reports that the runner's agent answered.
func (l *Place) Running() { l.p.report(l.id, l.allocated(), runtime.AllocationRunning, "") }

// Free reports that the runner takes no room any more. It was to end, or else the
// message says why it did.
func (l *Place) Free(meant bool, message string) {
	l.p.mu.Lock()
	id, status := l.allocation, runtime.AllocationFailed
	switch {
	case l.lost:
		status, message = runtime.AllocationLost, "it wasn't there after a restart"
	case meant:
		status, message = runtime.AllocationComplete, ""
	}
	l.p.mu.Unlock()
	l.p.report(l.id, id, status, message)
}
