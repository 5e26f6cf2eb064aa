package nomad

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/nomad/state"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// warmAll starts a goroutine for each starting runner with a known allocation, which warms it.
func (c *Cluster) warmAll() {
	c.runners.mu.Lock()
	var due []*entry
	for _, e := range c.runners.entries {
		if e.coldAt() != "" {
			due = append(due, e)
		}
	}
	c.runners.mu.Unlock()
	for _, e := range due {
		c.warm(e)
	}
}

// coldAt returns the allocation in which e should be warmed, "" if there is none. The caller holds
// mu.
func (e *entry) coldAt() string {
	if e.removing || e.ready != nil || e.runner.State != runtime.RunnerStarting || e.allocation == "" {
		return ""
	}
	if e.warming != nil && e.warming.allocation == e.allocation {
		return ""
	}
	return e.allocation
}

// warm tries until a runner's agent answers, and stores that. Then the runner is IDLE. The tries
// begin as soon as the allocation is known, because Nomad reports a running task a second late.
func (c *Cluster) warm(e *entry) {
	c.runners.mu.Lock()
	defer c.runners.mu.Unlock()
	at := e.coldAt()
	if at == "" {
		return
	}
	w := &warming{allocation: at, done: make(chan struct{})}
	stop, ok := c.group.Go(func(ctx context.Context) {
		defer close(w.done)
		c.warmIn(ctx, e, at)
	})
	if !ok {
		return
	}
	if e.warming != nil {
		e.warming.stop() // for an earlier allocation
	}
	w.stop = stop
	e.warming = w
	c.counts.placed(e)
}

// warmIn delivers the agent if necessary, waits for its answer in one allocation, and stores that.
// It returns when that is done, ctx ends, or the runner is given up. Its pauses are those of pace.
func (c *Cluster) warmIn(ctx context.Context, e *entry, allocation string) {
	began := time.Now()
	var stuck wedge
	var streamed delivered
	for pause := c.pace.first(); backoff.Sleep(ctx, pause) == nil; pause = c.pace.next(time.Since(began)) {
		err := c.deliver(ctx, e, allocation, &streamed)
		if streamed.refused != "" {
			c.giveUp(e, allocation, streamed.refused)
			return
		}
		if err == nil {
			err = c.bridges.Keep(ctx, e.runner.ID, false) // succeeds when the agent has answered
		}
		if err == nil {
			c.pace.took(time.Since(began))
			err = c.makeReady(ctx, e, allocation)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		c.config.Logger.Debug("an agent doesn't answer yet; trying again", zap.String("runner", string(e.runner.ID)), zap.Error(c.nomad.Redact(err)))
		if c.unwedge(ctx, e, allocation, &stuck, err) {
			return
		}
	}
}

// delivered is the progress of streaming the agent to one task.
type delivered struct {
	done    bool   // the task has the agent
	tries   int    // failed ones since the task was listed as running
	refused string // why no further try can help; "": another one may
}

// streamTries is how often the agent is streamed to a running task before its runner is given up.
const streamTries = 12

// deliver streams the agent to a starting runner whose task doesn't get it otherwise.
func (c *Cluster) deliver(ctx context.Context, e *entry, allocation string, s *delivered) error {
	c.runners.mu.Lock()
	way, node, runs := e.way, e.node, e.runs && e.allocation == allocation
	c.runners.mu.Unlock()
	if way.Stream == "" || s.done {
		return nil
	}
	err := c.delivery.To(ctx, node, allocation, way.Task, way.Stream)
	var refusal *connection.RefusalError
	switch {
	case err == nil:
		s.done = true
	case errors.As(err, &refusal):
		s.refused = refusal.Error()
	// Until its task is listed as running, a failure is expected and doesn't count.
	case runs:
		if s.tries++; s.tries == streamTries {
			s.refused = fmt.Sprintf("the agent could not be streamed to it in %d tries: %v", s.tries, c.nomad.Redact(err))
		}
	}
	return err
}

// makeReady stores that a runner's agent answered.
func (c *Cluster) makeReady(ctx context.Context, e *entry, allocation string) error {
	answered := time.Now()
	c.runners.mu.Lock()
	r := state.Record{Environment: e.runner.Environment.ID, Allocation: allocation, Restarts: e.restarts}
	c.runners.mu.Unlock()
	// The variable comes before the state: a server that takes over must find every runner ready
	// that this one has offered to a claim.
	stored, done, err := c.records.Write(ctx, e.runner.ID, r)
	if err != nil {
		return err
	}
	c.runners.mu.Lock()
	if e.ready != nil { // a listing found it first, and it may be claimed already
		c.counts.answered(e, answered)
		c.runners.mu.Unlock()
		return nil
	}
	if !done {
		c.runners.mu.Unlock()
		return runtime.Errorf(runtime.CodeConflict, "runner %s has a variable already", e.runner.ID)
	}
	if e.removing || e.allocation != allocation {
		c.runners.mu.Unlock()
		return nil // a listing has newer information
	}
	e.ready = &listing.Readiness{Allocation: allocation, Restarts: r.Restarts, Index: stored.Created, At: stored.At}
	e.variable = stored.Index
	c.counts.answered(e, answered)
	if e.advance(runtime.RunnerIdle) {
		e.runner.Message = ""
	}
	c.runners.changed(e)
	env := e.runner.Environment.ID
	c.runners.mu.Unlock()
	c.changes.Send(env)
	return nil
}

// An alloc exec that Nomad's client starts in the moment in which a task begins can make the client
// believe permanently that the task hasn't begun. In 1.11.3 the answer is made from a copy of the
// task's state, and the copy is then stored as the state. Any later event of the task corrects it.

// After wedgedAfter, and at most wedgedSignals times, the server sends the task a signal to cause
// such an event. If Nomad is slow, a try takes seconds.
const (
	wedgedAfter   = 3 * time.Second
	wedgedSignals = 3
)

// A wedge records the attempts for a task of which Nomad's client claims that it hasn't begun.
type wedge struct {
	since   time.Time // when the client first claimed that of a task listed as running
	signals int       // sent since then
}

// unwedge handles the error of a try. If Nomad's client claims that a task hasn't begun, but the
// task is listed as running, it sends the task a harmless signal. After a while it gives up the
// runner and returns true. A task whose image is being pulled isn't listed as running, however long
// that takes.
func (c *Cluster) unwedge(ctx context.Context, e *entry, allocation string, w *wedge, err error) bool {
	if !strings.Contains(err.Error(), "not started yet") {
		return false
	}
	c.runners.mu.Lock()
	begun, task := e.runs && e.allocation == allocation, e.way.Task
	c.runners.mu.Unlock()
	switch {
	case !begun:
		*w = wedge{}
		return false
	case w.signals >= wedgedSignals && time.Since(w.since) > wedgedAfter:
		return c.giveUp(e, allocation, "its task runs, but Nomad's client believes that it hasn't begun, and executes nothing in it")
	}
	w.since = cmp.Or(w.since, time.Now())
	w.signals++
	err = c.nomad.Attempt(ctx, func(ctx context.Context) error {
		return c.nomad.API().Allocations().Signal(&api.Allocation{ID: allocation}, connection.Query(ctx), task, "SIGCONT")
	})
	if err != nil && ctx.Err() == nil { // most likely the policy lacks alloc-lifecycle
		c.config.Logger.Warn("Nomad's client doesn't notice that a task runs, and it can't be corrected by a signal: check that the token's policy has alloc-lifecycle",
			zap.String("runner", string(e.runner.ID)), zap.Error(c.nomad.Redact(err)))
	}
	return false
}

// giveUp gives up a starting runner, and reports whether it did. It doesn't if a listing found the
// runner ready meanwhile, since it may be claimed.
func (c *Cluster) giveUp(e *entry, allocation, why string) bool {
	c.runners.mu.Lock()
	gone := e.allocation == allocation && e.ready == nil && e.advance(runtime.RunnerGone)
	if gone {
		e.runner.GoneReason, e.runner.Message = runtime.GoneStartFailed, why
		c.counts.gone(e)
		c.runners.changed(e)
	}
	env := e.runner.Environment.ID
	c.runners.mu.Unlock()
	if gone {
		c.changes.Send(env)
	}
	return gone
}
