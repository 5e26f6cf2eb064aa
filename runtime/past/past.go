// Package past remembers what happened to runners that aren't there any more: a
// bounded number of them, the latest.
package past

import (
	"iter"

	"github.com/rockpool/rockpool/runtime"
)

// most is how many runners are remembered, at some 1 KB each.
const most = 500

// A Runner is what is remembered of one.
type Runner struct {
	Environment runtime.EnvironmentID
	Events      []runtime.TaskEvent
	Allocations []runtime.Allocation // where its cluster forgets them with it
}

// Runners are the latest that were removed. The zero value has none. Methods
// are for one goroutine at a time.
type Runners struct {
	known map[runtime.RunnerID]Runner
	order []runtime.RunnerID // the oldest first
}

// Add remembers a runner in place of the oldest, or in its own place if it is
// known.
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

// All returns those that are remembered, the oldest first.
func (r *Runners) All() iter.Seq[Runner] {
	return func(yield func(Runner) bool) {
		for _, id := range r.order {
			if !yield(r.known[id]) {
				return
			}
		}
	}
}

// Find returns what is remembered of a runner, if anything is.
func (r *Runners) Find(id runtime.RunnerID) (Runner, bool) {
	found, ok := r.known[id]
	return found, ok
}
