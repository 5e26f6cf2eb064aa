// Package past keeps the events of removed runners, for a limited number of the latest ones.
package past

import (
	"iter"

	"github.com/rockpool/rockpool/runtime"
)

// most bounds the runners kept, at about 1 KB each.
const most = 500

// A Runner is what is kept about a removed runner.
type Runner struct {
	Environment runtime.EnvironmentID
	Events      []runtime.TaskEvent
	Allocations []runtime.Allocation // if the cluster forgets them with the runner
}

// Runners are the runners removed last. The zero value has none. It isn't safe for concurrent use.
type Runners struct {
	known map[runtime.RunnerID]Runner
	order []runtime.RunnerID // oldest first
}

// Add adds a runner, or replaces it. If there are too many, it drops the oldest.
func (r *Runners) Add(id runtime.RunnerID, runner Runner) {
	if r.known == nil {
		r.known = map[runtime.RunnerID]Runner{}
	}
	if _, again := r.known[id]; !again {
		r.order = append(r.order, id)
	}
	r.known[id] = runner
	if len(r.order) > most {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
}

// All returns all runners kept, oldest first.
func (r *Runners) All() iter.Seq[Runner] {
	return func(yield func(Runner) bool) {
		for _, id := range r.order {
			if !yield(r.known[id]) {
				return
			}
		}
	}
}

// Find returns what is kept about a runner, and whether anything is.
func (r *Runners) Find(id runtime.RunnerID) (Runner, bool) {
	found, ok := r.known[id]
	return found, ok
}
