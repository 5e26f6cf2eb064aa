package scheduler

import "github.com/rockpool/rockpool/runtime"

// A plan is a worker's decision for a job. The planner checks it against the current state when it
// applies it.
type plan struct {
	delivery delivery
	stop     []runtime.AllocationID
	place    *Allocation // nil: none
	ends     bool        // the evaluation, once all of the plan is applied
}

// planned is the result of a plan.
type planned struct {
	placed  bool
	refresh uint64 // not 0: the placement was refused; a snapshot of at least this index shows why
}

// reconcile decides what brings a job from its present allocations to the wanted ones within the
// room. It is a pure function. If the runner doesn't fit now, it returns the shortages.
func reconcile(job *Job, have []*Allocation, r room) (p plan, short []Shortage) {
	wanted := job != nil && !job.Stopped
	for _, a := range have {
		switch {
		// It has its place already.
		case !a.Status.Ended() && wanted:
			return plan{}, nil
		// It is no longer wanted, or it was lost and is replaced.
		case !a.Status.Ended() || wanted && a.replaceable():
			if a.Desired == runtime.DesiredRun {
				p.stop = append(p.stop, a.ID)
			}
		case wanted:
			return plan{}, nil // its allocation ended after it ran: the runner isn't started again
		}
	}
	if !wanted {
		return p, nil
	}
	if short = r.shortages(job.Resources); short != nil {
		return p, short
	}
	p.place = &Allocation{
		ID:          runtime.AllocationID(newID()),
		Job:         job.ID,
		Environment: job.Environment,
		Resources:   job.Resources,
		Desired:     runtime.DesiredRun,
		Status:      runtime.AllocationPending,
	}
	return p, nil
}

// empty reports whether there is nothing to apply.
func (p plan) empty() bool { return p.place == nil && len(p.stop) == 0 }

// apply applies as much of p as the current state allows. Stops always apply. The placement doesn't
// if the runner is no longer wanted, has an allocation, or doesn't fit.
func (p plan) apply(w *write) planned {
	for _, id := range p.stop {
		if a := w.allocation(id); a != nil && a.Desired == runtime.DesiredRun {
			stopped := *a
			stopped.Desired = runtime.DesiredStop
			w.putAllocation(a, &stopped)
		}
	}
	if p.place == nil {
		p.end(w)
		return planned{}
	}
	job, node := w.job(p.place.Job), w.Node()
	// The state may have changed since the worker's snapshot. Room that is kept for others doesn't
	// count here: the worker has respected it.
	again, _ := reconcile(job, w.allocations(p.place.Job), room{capacity: node.Capacity, used: node.Used})
	if again.place == nil {
		return planned{refresh: w.shows()}
	}
	a := *p.place
	a.Evaluation = p.delivery.ID
	w.putAllocation(nil, &a)
	p.end(w)
	return planned{placed: true}
}

// end ends the evaluation in the same write that applies its plan.
func (p plan) end(w *write) {
	if p.ends {
		complete(w, p.delivery, "")
	}
}

// shows returns the index of the state that contains what w sees.
func (w *write) shows() uint64 {
	if w.dirty {
		return w.index
	}
	return w.index - 1
}
