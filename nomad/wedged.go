package nomad

import (
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// wedgedAfter is how long a task has been listed as running, while Nomad's client
// says that it hasn't begun, for that to be no passing state.
const wedgedAfter = 3 * time.Second

// wedged gives a runner up in which Nomad's client executes nothing, as the error
// of the last try says, although its task runs; and reports whether it did. An
// alloc exec that the client is asked for in the moment in which a task begins
// can leave it believing for good that it hasn't (1.11.3: the answer is made from
// a copy of the task's state, and the copy is then kept).
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
	c.workers.Go(func() { c.changes.Send(env) })
	return true
}
