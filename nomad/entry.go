package nomad

import (
	"context"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// An entry is one runner that the cluster knows.
type entry struct {
	id       runtime.RunnerID
	recorded chan struct{} // closed when Start has registered its job, or failed

	// Guarded by Cluster.mu.
	runner      runtime.Runner
	change      int // the last change of ours
	way         bridgeWay
	registered  uint64 // the index of its job, as far as we know; 0: not registered yet
	priority    runtime.Priority
	allocations []*api.AllocationListStub // as they were listed last
	goneAt      time.Time                 // when it was found to be, or was given up
	allocation  string                    // where its agent is, or may be; "": unknown
	node        string                    // of the allocation; "": not known yet
	restarts    uint64                    // of the task there, as listed
	runs        bool                      // its task there is listed as running
	ready       *readiness
	variable    uint64 // the index of its variable, to write it conditionally; 0: unknown, or there is none
	oom         int64
	warming     *warming // the work on it while it starts
	removal     *removal // under way
	removing    bool     // Remove was called: it ends, whatever is listed
	settled     bool     // the last list says that its processes have ended
}

// A warming is one goroutine's work on a runner that starts.
type warming struct {
	allocation string
	stop       context.CancelFunc
	done       chan struct{}
}

// changed notes that e was changed by us. The caller holds mu.
func (c *Cluster) changed(e *entry) {
	c.change++
	e.change = c.change
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
func (c *Cluster) find(id runtime.RunnerID) (*entry, error) {
	e := c.entries[id]
	if e == nil || e.removing || e.runner.State == runtime.RunnerStopping || e.runner.State == runtime.RunnerGone {
		return nil, gone(id)
	}
	return e, nil
}
