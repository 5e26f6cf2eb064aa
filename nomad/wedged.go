package nomad

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// An alloc exec that Nomad's client is asked for in the moment in which a task
// begins can leave it believing for good that it hasn't (1.11.3: the answer is
// made from a copy of the task's state, and the copy is then kept as the state).
// Whatever happens to the task next has it look again.

// wedgedAfter is how long it is tried to have it look again.
const wedgedAfter = 3 * time.Second

// unwedge looks at the error of a try. Where Nomad's client says that a task
// hasn't begun which is listed as running, it is sent a signal that does nothing
// to it; after a while the runner is given up, and true returned.
func (c *Cluster) unwedge(ctx context.Context, e *entry, allocation string, err error) bool {
	if !strings.Contains(err.Error(), "not started yet") {
		return false
	}
	c.mu.Lock()
	runs, task := e.runs, e.way.Task
	current := e.allocation == allocation && !runs.IsZero()
	c.mu.Unlock()
	switch {
	case !current:
		return false
	case time.Since(runs) > wedgedAfter:
		return c.giveUp(e, allocation)
	}
	err = c.attempt(ctx, func(ctx context.Context) error {
		return c.nomad.calls.Allocations().Signal(&api.Allocation{ID: allocation}, query(ctx), task, "SIGCONT")
	})
	if err != nil && ctx.Err() == nil { // most likely the policy lacks alloc-lifecycle
		c.log.Warn("Nomad's client believes that a task hasn't begun which runs, and can't be made to look again",
			zap.String("runner", string(e.id)), zap.Error(c.redact(err)))
	}
	return false
}

// giveUp gives up a runner that starts, and reports whether it did.
func (c *Cluster) giveUp(e *entry, allocation string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.allocation != allocation || !e.advance(runtime.RunnerGone) {
		return false
	}
	e.runner.GoneReason, e.runner.Message = runtime.GoneStartFailed, "its task runs, but Nomad's client believes that it hasn't begun, and executes nothing in it"
	c.changed(e)
	env := e.runner.Environment.ID
	c.workers.Go(func() { c.changes.Send(env) })
	return true
}
