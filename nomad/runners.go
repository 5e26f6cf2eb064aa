package nomad

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/nomad/state"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

type runners struct {
	mu       sync.Mutex // guards all fields and each entry; never held across I/O
	entries  map[runtime.RunnerID]*entry
	removed  map[runtime.RunnerID]int // the change at which a runner was forgotten
	past     health.RemovedRunners
	change   int         // number of changes by this server; a list that began earlier lacks the later ones
	highest  uint64      // index of the newest registered job: an older list is ignored
	observed observation // in the last list
}

type entry struct {
	recorded chan struct{}  // closed when Start has registered its job or failed
	runner   runtime.Runner // its ID, Environment and CreatedAt never change
	location
	access     job.AgentAccess
	change     int    // the last change of it by this server
	registered uint64 // the index of its job, or 0 if it isn't registered yet
	priority   runtime.Priority
	goneAt     time.Time  // when it was found to be gone, or was given up
	start      startTimes // what was measured of its start
	adopted    bool       // started by an earlier server, and no list has shown its state yet
	ready      *listing.Readiness
	variable   uint64     // the index of its variable, for conditional writes; 0 if it is unknown, or there is none
	oom        int64      // tasks killed because memory was full, as far as Nomad reported
	waiting    *agentWait // the goroutine that waits for its agent
	removal    *removal   // in progress
	removing   bool       // Remove was called: it ends, whatever the lists say
	settled    bool       // the last list says that its processes have ended
	network    network    // whether it has one, if its environment has network access
	leak       string     // why the last removal failed, if it did
}

// A location is where a runner is, according to the last list.
type location struct {
	allocations []*api.AllocationListStub
	allocation  string // where its agent is or will be, if that is known
	node        string // of the allocation, if it is known
	restarts    uint64 // of the task
	runs        bool   // the task runs
}

func (r *runners) changed(e *entry) {
	r.change++
	e.change = r.change
}

// advance moves e's runner forward, and reports whether it did. The caller holds mu.
func (e *entry) advance(state runtime.RunnerState) bool {
	if !e.runner.Advance(state) {
		return false
	}
	if state != runtime.RunnerGone {
		return true
	}
	e.goneAt = time.Now()
	if e.waiting != nil {
		e.waiting.stop()
	}
	return true
}

// find returns an existing runner, or RUNNER_GONE. The caller holds mu.
func (r *runners) find(id runtime.RunnerID) (*entry, error) {
	e := r.entries[id]
	if e == nil || e.removing || e.runner.State == runtime.RunnerStopping || e.runner.State == runtime.RunnerGone {
		return nil, gone(id)
	}
	return e, nil
}

// environment returns a runner's environment, if it is known. The caller holds mu.
func (r *runners) environment(id runtime.RunnerID) runtime.EnvironmentID {
	if e := r.entries[id]; e != nil {
		return e.runner.Environment.ID
	}
	gone, _ := r.past.Find(id)
	return gone.Environment
}

// remember keeps what Nomad forgets with a runner's job. The caller holds mu.
func (r *runners) remember(e *entry) {
	now := time.Now()
	r.past.Add(e.runner.ID, health.RemovedRunner{
		Environment: e.runner.Environment.ID,
		Events:      e.events(runtime.TaskEvent{At: now, Kind: runtime.TaskEnded}),
		Allocations: listing.LastAllocations(e.allocations, e.runner, e.ready, now),
	})
}

// events returns the known events of e's tasks, and later. The caller holds mu.
func (e *entry) events(later ...runtime.TaskEvent) []runtime.TaskEvent {
	var known []runtime.TaskEvent
	if e.ready != nil {
		known = append(known, runtime.TaskEvent{At: e.ready.At, Kind: runtime.TaskReady})
	}
	if e.runner.State == runtime.RunnerGone {
		known = append(known, runtime.TaskEvent{At: e.goneAt, Kind: runtime.TaskGone, Detail: e.runner.Message})
	}
	return listing.Events(e.allocations, append(known, later...)...)
}

// Runners implements runtime.Cluster. The result is based on a list that began after the call, or
// at most half a second before it. It always includes the changes of this server, so a runner that
// becomes ready needn't wait for a list. Later findings cause a hint.
func (c *Cluster) Runners(ctx context.Context, env runtime.EnvironmentID) ([]runtime.Runner, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	if c.refresher.Since() > listing.MostGap {
		if err := c.refresher.Join(ctx); err != nil {
			return nil, err
		}
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

// Evidence returns how many of the runner's tasks Nomad saw killed because memory was full. The
// agent's counts come with an execution's end.
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

// TaskEvents implements runtime.Cluster with the result of the last refresh.
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

// Mark implements runtime.Cluster with one conditional write of a variable. It returns CONFLICT for
// a runner that is starting.
func (c *Cluster) Mark(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	c.runners.mu.Lock()
	e, err := c.runners.find(id)
	if err == nil && e.ready == nil {
		err = runtime.Errorf(runtime.CodeConflict, "runner %s isn't ready", id)
	}
	if err != nil {
		c.runners.mu.Unlock()
		return err
	}
	known := e.runner.Claim
	next := state.Record{Environment: e.runner.Environment.ID, Allocation: e.ready.Allocation, Restarts: e.ready.Restarts, Claim: claim, Index: e.variable}
	c.runners.mu.Unlock()
	switch {
	case known.Equal(claim):
		return nil
	case known.Epoch != claim.Epoch-1:
		return stale(id, known)
	case next.Index == 0: // impossible, because a ready runner has a variable
		return runtime.Errorf(runtime.CodeClusterUnavailable, "the claim of runner %s is unknown: retry", id)
	}
	stored, done, err := c.records.Write(ctx, id, next)
	if err != nil {
		return err
	}
	c.runners.mu.Lock()
	// A refresh may have read a later write meanwhile. The highest index wins.
	if stored.Index > e.variable {
		e.variable, e.runner.Claim = stored.Index, stored.Claim
		if stored.Claim.Held() {
			e.advance(runtime.RunnerClaimed)
		}
		c.runners.changed(e)
	}
	_, err = c.runners.find(id)
	c.runners.mu.Unlock()
	switch {
	case err != nil || stored.Index == 0: // the runner was removed meanwhile, with its variable
		return gone(id)
	case !done:
		return stale(id, stored.Claim)
	}
	c.openEarly(id)
	return nil
}

func stale(id runtime.RunnerID, stored runtime.Claim) error {
	return runtime.Errorf(runtime.CodeConflict, "runner %s is at epoch %d of its claim", id, stored.Epoch)
}
