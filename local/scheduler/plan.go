package scheduler

import "github.com/rockpool/rockpool/runtime"

// A plan is what a worker found to do for a job, to be checked against the
// state as it is when it is applied.
type plan struct {
	delivery delivery
	stop     []runtime.AllocationID
	place    *Allocation // nil: none
	ends     bool        // the evaluation, once all of the plan is applied
}

// planned is what became of a plan.
type planned struct {
	placed  bool
	refresh uint64 // not 0: the placement was refused for what a state of this index shows
}

// reconcile decides what brings a job from the allocations that it has to what
// it wants, in the room that there is. It is pure. What is to be placed and
// can't be for now is told by what it lacks.
func reconcile(job *Job, have []*Allocation, r room) (p plan, short []Shortage) {
	wanted := job != nil && !job.Stopped
	for _, a := range have {
		switch {
		case !a.Status.Ended() && wanted:
			return plan{}, nil
		case !a.Status.Ended() || wanted && a.replaceable():
			if a.Desired == runtime.DesiredRun {
				p.stop = append(p.stop, a.ID)
			}
		case wanted:
			return plan{}, nil // it ended, and that is the end of the runner
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

func (p plan) empty() bool { return p.place == nil && len(p.stop) == 0 }

// apply does what can be done of p in a write, whatever has changed since p was
// made: a stop always can; a placement can't where the runner isn't wanted any
// more, or has an allocation, or doesn't fit.
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

// end ends the evaluation in the write that does all that it was made for.
func (p plan) end(w *write) {
	if p.ends {
		complete(w, p.delivery, "")
	}
}

// shows returns the index of the state that will show what w sees.
func (w *write) shows() uint64 {
	if w.dirty {
		return w.index
	}
	return w.index - 1
}
