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
	"github.com/rockpool/rockpool/nomad/delivery"
	"github.com/rockpool/rockpool/nomad/outcome"
	"github.com/rockpool/rockpool/nomad/record"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// warmAll has every runner that starts, and whose allocation is known, warmed
// by one goroutine.
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

// coldAt returns the allocation in which e is to be warmed; "": in none. The
// caller holds mu.
func (e *entry) coldAt() string {
	if e.removing || e.ready != nil || e.runner.State != runtime.RunnerStarting || e.allocation == "" {
		return ""
	}
	if e.warming != nil && e.warming.allocation == e.allocation {
		return ""
	}
	return e.allocation
}

// warm tries a runner's agent until it answers, and makes that durable: then
// the runner is IDLE. Nomad says a second late that a task runs, so it is tried
// as soon as the allocation is known.
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
		e.warming.stop() // of an allocation before
	}
	w.stop = stop
	e.warming = w
	c.counts.placed(e)
}

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
			err = c.bridges.Keep(ctx, e.runner.ID, false) // which has the agent answer
		}
		if err == nil {
			c.pace.took(time.Since(began))
			err = c.makeReady(ctx, e, allocation)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		c.config.Logger.Debug("an agent doesn't answer yet", zap.String("runner", string(e.runner.ID)), zap.Error(c.nomad.Redact(err)))
		if c.unwedge(ctx, e, allocation, &stuck, err) {
			return
		}
	}
}

// Delivered is how far the streaming of the agent to one task is.
type delivered struct {
	done    bool
	tries   int    // that failed since the task was listed as running
	refused string // why it is given up; "": it isn't
}

// streamTries is how often the agent is streamed to a task that runs, until its runner is given up.
const streamTries = 12

// deliver streams the agent to where a runner starts, if it doesn't get there by itself.
func (c *Cluster) deliver(ctx context.Context, e *entry, allocation string, s *delivered) error {
	c.runners.mu.Lock()
	way, node, runs := e.way, e.node, e.runs && e.allocation == allocation
	c.runners.mu.Unlock()
	if way.Stream == "" || s.done {
		return nil
	}
	err := c.delivery.To(ctx, node, allocation, way.Task, way.Stream)
	var refusal *delivery.Refusal
	switch {
	case err == nil:
		s.done = true
	case errors.As(err, &refusal):
		s.refused = refusal.Error()
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
	r := record.Record{Environment: e.runner.Environment.ID, Allocation: allocation, Restarts: e.restarts}
	c.runners.mu.Unlock()
	stored, done, err := c.records.Write(ctx, e.runner.ID, r)
	if err != nil {
		return err
	}
	c.runners.mu.Lock()
	if e.ready != nil { // a list found out first, and it may be claimed by now
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
		return nil // a list knows better
	}
	e.ready = &outcome.Readiness{Allocation: allocation, Restarts: r.Restarts, Index: stored.Created, At: stored.At}
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

// An alloc exec that Nomad's client starts at the moment in which a task
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

// unwedge handles the error of a try. Where Nomad's client says that a task
// hasn't begun which is listed as running, it is sent a signal that does nothing
// to it; after a while the runner is given up, and true returned. One whose image
// is pulled isn't listed so, however long that takes.
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
		c.config.Logger.Warn("Nomad's client believes that a task hasn't begun which runs, and can't be made to look again",
			zap.String("runner", string(e.runner.ID)), zap.Error(c.nomad.Redact(err)))
	}
	return false
}

// giveUp gives up a runner that starts, and reports whether it did. One that a
// list found ready meanwhile may be somebody's by now.
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
