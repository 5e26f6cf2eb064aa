package local

import (
	"context"
	"encoding/json"
	"os"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime"
)

// An entry is one runner that the cluster knows.
type entry struct {
	id          runtime.RunnerID
	environment runtime.EnvironmentID
	private     private
	priority    runtime.Priority
	recorded    chan struct{} // closed when Start has stored the record, or failed
	turn        chan struct{} // held by who writes the record: store, then memory

	// Guarded by Cluster.mu.
	runner   runtime.Runner
	making   *making        // a worker makes it
	touched  bool           // there may be something of a sandbox
	process  *os.File       // a pidfd, while the first process is watched
	groups   *cgroup.Groups // known once it was made
	oomSeen  int64          // OOM kills that Evidence has told
	evidence *runtime.Evidence
	removing *removal
}

// private is what the record of a runner says beside the runner itself: all
// that is needed to remove what there is of it.
type private struct {
	Slot  int    `json:"slot"`
	Group string `json:"group"`
}

// making is a worker's work on an entry.
type making struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// removal is one attempt to remove a runner.
type removal struct {
	done chan struct{}
	err  error // read after done
}

func newEntry(r runtime.Runner, priority runtime.Priority) *entry {
	return &entry{
		id:          r.ID,
		environment: r.Environment.ID,
		priority:    priority,
		recorded:    make(chan struct{}),
		turn:        make(chan struct{}, 1),
		runner:      r,
	}
}

// advance moves the runner forward to state, and reports whether it did; it
// is the only place that changes a state. The caller holds Cluster.mu.
func (e *entry) advance(state runtime.RunnerState) bool {
	if !e.runner.State.Before(state) || e.removing != nil && state != runtime.RunnerStopping {
		return false
	}
	e.runner.State = state
	return true
}

// write waits for its turn to write e's record and does it.
func (e *entry) write(ctx context.Context, do func() error) error {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-e.turn }()
	return do()
}

// put stores r as e's record.
func (c *Cluster) put(ctx context.Context, e *entry, r runtime.Runner) error {
	text, err := json.Marshal(e.private)
	if err != nil {
		return err
	}
	return c.config.Store.PutRunner(ctx, r, text)
}

// A queue holds the entries that wait to be made: those that a claim waits for
// first, then by age.
type queue struct{ waiting, refilling []*entry }

func (q *queue) push(e *entry) {
	if e.priority >= runtime.PriorityWaiting {
		q.waiting = append(q.waiting, e)
	} else {
		q.refilling = append(q.refilling, e)
	}
}

func (q *queue) pop() *entry {
	for _, from := range []*[]*entry{&q.waiting, &q.refilling} {
		if len(*from) > 0 {
			e := (*from)[0]
			*from = (*from)[1:]
			return e
		}
	}
	return nil
}
