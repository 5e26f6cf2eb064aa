package health

import (
	"iter"

	"github.com/rockpool/rockpool/runtime"
)

// mostRemoved bounds the runners kept, at about 1 KB each.
const mostRemoved = 500

// A RemovedRunner has the events of a removed runner.
type RemovedRunner struct {
	Environment runtime.EnvironmentID
	Events      []runtime.TaskEvent
	Allocations []runtime.Allocation // if the cluster forgets them with the runner
}

// RemovedRunners keeps a limited number of the runners removed last. The zero value has none. It isn't safe
// for concurrent use.
type RemovedRunners struct {
	known map[runtime.RunnerID]RemovedRunner
	order []runtime.RunnerID // oldest first
}

// Add adds a runner, or replaces it. If there are too many, it drops the oldest.
func (r *RemovedRunners) Add(id runtime.RunnerID, runner RemovedRunner) {
	if r.known == nil {
		r.known = map[runtime.RunnerID]RemovedRunner{}
	}
	if _, again := r.known[id]; !again {
		r.order = append(r.order, id)
	}
	r.known[id] = runner
	if len(r.order) > mostRemoved {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
}

// All returns all runners kept, oldest first.
func (r *RemovedRunners) All() iter.Seq[RemovedRunner] {
	return func(yield func(RemovedRunner) bool) {
		for _, id := range r.order {
			if !yield(r.known[id]) {
				return
			}
		}
	}
}

// Find returns what is kept about a runner, and whether anything is.
func (r *RemovedRunners) Find(id runtime.RunnerID) (RemovedRunner, bool) {
	found, ok := r.known[id]
	return found, ok
}
