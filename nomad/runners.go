package nomad

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/outcome"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/past"
)

// runners are those that the cluster knows.
type runners struct {
	mu      sync.Mutex // guards all, and each entry; never held across I/O
	entries map[runtime.RunnerID]*entry
	removed map[runtime.RunnerID]int // the change at which a runner was forgotten
	past    past.Runners
	change  int    // counts changes of ours, which a list that began before doesn't know
	highest uint64 // index of the latest job that was registered: an older list isn't believed
	seen    seen   // by the last list
}

// An entry is one runner that the cluster knows.
type entry struct {
	recorded chan struct{} // closed when Start has registered its job, or failed
	runner   runtime.Runner
	place
	way        job.Way
	change     int    // the last change of ours
	registered uint64 // the index of its job, as far as we know; 0: not registered yet
	priority   runtime.Priority
	goneAt     time.Time  // when it was found to be, or was given up
	start      startTimes // what was counted of it
	adopted    bool       // an earlier server's, of which no list has said yet how it is
	ready      *outcome.Readiness
	variable   uint64 // the index of its variable, to write it conditionally; 0: unknown, or there is none
	oom        int64
	warming    *warming // the work on it while it starts
	removal    *removal // under way
	removing   bool     // Remove was called: it ends, whatever is listed
	settled    bool     // the last list says that its processes have ended
	leak       string   // why the last removal failed; "": none has
}

// A place is where a runner is, as listed last.
type place struct {
	allocations []*api.AllocationListStub
	allocation  string // where its agent is, or may be; "": unknown
	node        string // of the allocation; "": not known yet
	restarts    uint64 // of the task there
	runs        bool   // its task there runs
}

// A warming is one goroutine's work on a runner that starts.
type warming struct {
	allocation string
	stop       context.CancelFunc
	done       chan struct{}
}

// changed notes that e was changed by us. The caller holds mu.
func (r *runners) changed(e *entry) {
	r.change++
	e.change = r.change
}

// advance moves e's runner forward to state, and reports whether it did. The caller
// holds mu.
func (e *entry) advance(state runtime.RunnerState) bool {
	if !e.runner.Advance(state) {
		return false
	}
	if state != runtime.RunnerGone {
		return true
	}
	e.goneAt = time.Now()
	if e.warming != nil {
		e.warming.stop()
	}
	return true
}

// find returns a runner that is there, or RUNNER_GONE. The caller holds mu.
func (r *runners) find(id runtime.RunnerID) (*entry, error) {
	e := r.entries[id]
	if e == nil || e.removing || e.runner.State == runtime.RunnerStopping || e.runner.State == runtime.RunnerGone {
		return nil, gone(id)
	}
	return e, nil
}

// environment returns a runner's; "" where it isn't known. The caller holds mu.
func (r *runners) environment(id runtime.RunnerID) runtime.EnvironmentID {
	if e := r.entries[id]; e != nil {
		return e.runner.Environment.ID
	}
	gone, _ := r.past.Find(id)
	return gone.Environment
}

// remember keeps what happened to a runner that is removed: Nomad forgets it
// with its job. The caller holds mu.
func (r *runners) remember(e *entry) {
	now := time.Now()
	r.past.Add(e.runner.ID, past.Runner{
		Environment: e.runner.Environment.ID,
		Events:      e.events(runtime.TaskEvent{At: now, Kind: runtime.TaskEnded}),
		Allocations: outcome.LastAllocations(e.allocations, e.runner, e.ready, now),
	})
}

// events are those of e's tasks, those that we know of, and later ones. The caller holds mu.
func (e *entry) events(later ...runtime.TaskEvent) []runtime.TaskEvent {
	var known []runtime.TaskEvent
	if e.ready != nil {
		known = append(known, runtime.TaskEvent{At: e.ready.At, Kind: runtime.TaskReady})
	}
	if e.runner.State == runtime.RunnerGone {
		known = append(known, runtime.TaskEvent{At: e.goneAt, Kind: runtime.TaskGone, Detail: e.runner.Message})
	}
	return outcome.Events(e.allocations, append(known, later...)...)
}

// Runners implements runtime.Cluster, with what a list said that began after the
// call, or half a second before it at most. What this server itself did is
// always in it: that a runner got ready needn't wait for a list. What is found
// out later is hinted at.
func (c *Cluster) Runners(ctx context.Context, env runtime.EnvironmentID) ([]runtime.Runner, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	if err := c.refresher.recently(ctx); err != nil {
		return nil, err
	}
	c.runners.mu.Lock()
	defer c.runners.mu.Unlock()
	all := make([]runtime.Runner, 0, len(c.runners.entries))
	for _, e := range c.runners.entries {
		if env == "" || e.runner.Environment.ID == env {
			all = append(all, e.runner)
		}
	}
	return all, nil
}

// Evidence returns what Nomad saw: tasks that were killed because memory was full.
// What the agent counts comes with an execution's end.
func (c *Cluster) Evidence(ctx context.Context, id runtime.RunnerID) (runtime.Evidence, error) {
	if err := c.ready(ctx); err != nil {
		return runtime.Evidence{}, err
	}
	c.runners.mu.Lock()
	defer c.runners.mu.Unlock()
	e := c.runners.entries[id]
	if e == nil || e.removing {
		return runtime.Evidence{}, gone(id)
	}
	return runtime.Evidence{OOMKills: e.oom, Inside: true}, nil
}

// TaskEvents implements runtime.Cluster, from what the last refresh found.
func (c *Cluster) TaskEvents(ctx context.Context, id runtime.RunnerID) ([]runtime.TaskEvent, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	c.runners.mu.Lock()
	defer c.runners.mu.Unlock()
	if e := c.runners.entries[id]; e != nil {
		return e.events(), nil
	}
	gone, _ := c.runners.past.Find(id)
	return gone.Events, nil
}
