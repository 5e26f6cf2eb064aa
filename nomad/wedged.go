package nomad

import (
	"cmp"
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

// For so long, and so often, it is tried to have it look again: where Nomad is
// slow to answer, a try takes seconds.
const (
	wedgedAfter   = 3 * time.Second
	wedgedSignals = 3
)

// A wedge is what was done about a task of which Nomad's client says that it
// hasn't begun.
type wedge struct {
	since   time.Time // when it first said so of one that is listed as running
	signals int       // that were sent since
}

// unwedge looks at the error of a try. Where Nomad's client says that a task
// hasn't begun which is listed as running, it is sent a signal that does nothing
// to it; after a while the runner is given up, and true returned. One whose image
// is pulled isn't listed so, however long that takes.
func (c *Cluster) unwedge(ctx context.Context, e *entry, allocation string, w *wedge, err error) bool {
	if !strings.Contains(err.Error(), "not started yet") {
		return false
	}
	c.mu.Lock()
	begun, task := e.runs && e.allocation == allocation, e.way.Task
	c.mu.Unlock()
	switch {
	case !begun:
		*w = wedge{}
		return false
	case w.signals >= wedgedSignals && time.Since(w.since) > wedgedAfter:
		return c.giveUp(e, allocation)
	}
	w.since = cmp.Or(w.since, time.Now())
	w.signals++
	err = c.attempt(ctx, func(ctx context.Context) error {
		return c.nomad.calls.Allocations().Signal(&api.Allocation{ID: allocation}, query(ctx), task, "SIGCONT")
	})
	if err != nil && ctx.Err() == nil { // most likely the policy lacks alloc-lifecycle
		c.log.Warn("Nomad's client believes that a task hasn't begun which runs, and can't be made to look again",
			zap.String("runner", string(e.id)), zap.Error(c.redact(err)))
	}
	return false
}

// giveUp gives up a runner that starts, and reports whether it did. One that a
// list found ready meanwhile may be somebody's by now.
func (c *Cluster) giveUp(e *entry, allocation string) bool {
	c.mu.Lock()
	gone := e.allocation == allocation && e.ready == nil && e.advance(runtime.RunnerGone)
	if gone {
		e.runner.GoneReason, e.runner.Message = runtime.GoneStartFailed, "its task runs, but Nomad's client believes that it hasn't begun, and executes nothing in it"
		c.changed(e)
	}
	env := e.runner.Environment.ID
	c.mu.Unlock()
	if gone {
		c.changes.Send(env)
	}
	return gone
}
