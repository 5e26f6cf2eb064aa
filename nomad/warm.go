package nomad

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// warmAll has every runner that starts, and whose allocation is known, warmed
// by one goroutine.
func (c *Cluster) warmAll() {
	c.mu.Lock()
	var due []*entry
	for _, e := range c.entries {
		if e.coldAt() != "" {
			due = append(due, e)
		}
	}
	c.mu.Unlock()
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
	c.mu.Lock()
	at := e.coldAt()
	if at == "" || c.ended {
		c.mu.Unlock()
		return
	}
	if e.warming != nil {
		e.warming.stop() // of an allocation before
	}
	ctx, stop := context.WithCancel(c.life)
	w := &warming{allocation: at, stop: stop, done: make(chan struct{})}
	e.warming = w
	c.workers.Go(func() {
		defer close(w.done)
		defer stop()
		c.warmIn(ctx, e, at)
	})
	c.mu.Unlock()
}

func (c *Cluster) warmIn(ctx context.Context, e *entry, allocation string) {
	began := time.Now()
	var stuck wedge
	for pause := c.pace.first(); sleep(ctx, pause) == nil; pause = c.pace.next(time.Since(began)) {
		err := c.bridges.keep(ctx, e.id, false) // which has the agent answer
		if err == nil {
			c.pace.took(time.Since(began))
			err = c.makeReady(ctx, e, allocation)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		c.log.Debug("an agent doesn't answer yet", zap.String("runner", string(e.id)), zap.Error(c.redact(err)))
		if c.unwedge(ctx, e, allocation, &stuck, err) {
			return
		}
	}
}

// makeReady stores that a runner's agent answered.
func (c *Cluster) makeReady(ctx context.Context, e *entry, allocation string) error {
	c.mu.Lock()
	r := record{environment: e.runner.Environment.ID, allocation: allocation, restarts: e.restarts}
	c.mu.Unlock()
	stored, done, err := c.writeRecord(ctx, e.id, r)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if e.ready != nil { // a list found out first, and it may be claimed by now
		c.mu.Unlock()
		return nil
	}
	if !done {
		c.mu.Unlock()
		return runtime.Errorf(runtime.CodeConflict, "runner %s has a variable already", e.id)
	}
	if e.removing || e.allocation != allocation {
		c.mu.Unlock()
		return nil // a list knows better
	}
	e.ready = &readiness{allocation: allocation, restarts: r.restarts, index: stored.created, at: stored.at}
	e.variable = stored.index
	if e.advance(runtime.RunnerIdle) {
		e.runner.Message = ""
	}
	c.changed(e)
	env := e.runner.Environment.ID
	c.mu.Unlock()
	c.changes.Send(env)
	return nil
}
