package nomad

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// An alloc exec that Nomad's client is asked for at the moment in which the task
// begins can leave it believing for good that the task hasn't (1.11.3: the
// answer is made from a copy of the task's state, and the copy is then kept). So
// no exec is tried before something else tells that the task runs, where
// something does; and a runner that is caught in it is given up.

var errNotBegun = errors.New("its task hasn't begun, as far as Nomad's client says")

// begun returns nil when an agent may be tried: its task runs, or nothing tells
// sooner than a try whether it does.
func (c *Cluster) begun(ctx context.Context, e *entry, allocation string) error {
	c.mu.Lock()
	way, listed := e.way, e.allocation == allocation && !e.runs.IsZero()
	c.mu.Unlock()
	if listed || !drivers[way.Driver].tells {
		return nil
	}
	var usage api.AllocResourceUsage
	err := c.attempt(ctx, func(ctx context.Context) error {
		_, err := c.nomad.calls.Raw().Query("/v1/client/allocation/"+url.PathEscape(allocation)+"/stats", &usage, query(ctx))
		return err
	})
	if err == nil && usage.Tasks[way.Task] == nil {
		err = errNotBegun
	}
	return err
}

// wedgedAfter is how long a task is listed as running before it is told that
// it hasn't begun, for that to be no passing state.
const wedgedAfter = 3 * time.Second

// wedged gives a runner up in which Nomad's client executes nothing, with
// the error of the last try, although its task runs; and reports whether it did.
func (c *Cluster) wedged(e *entry, allocation string, err error) bool {
	if !strings.Contains(err.Error(), "not started yet") {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.allocation != allocation || e.runs.IsZero() || time.Since(e.runs) < wedgedAfter || !e.advance(runtime.RunnerGone) {
		return false
	}
	e.runner.GoneReason, e.runner.Message = runtime.GoneStartFailed, "its task runs, but Nomad's client believes that it hasn't begun, and executes nothing in it"
	c.changed(e)
	env := e.runner.Environment.ID
	c.workers.Go(func() { c.changes.send(env) })
	return true
}
