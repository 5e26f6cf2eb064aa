package nomad

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

// Start implements runtime.Cluster. It registers the runner's job. It is idempotent by id.
func (c *Cluster) Start(ctx context.Context, id runtime.RunnerID, env runtime.Environment, priority runtime.Priority) error {
	name := c.names().Runner(id)
	if _, valid := c.names().RunnerOf(name); !valid {
		return runtime.Invalid("id", "must be 1 to 64 letters, digits, '_' and '-'")
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	e := &entry{recorded: make(chan struct{}), priority: priority, runner: runtime.Runner{
		ID: id, Environment: env, State: runtime.RunnerStarting, CreatedAt: time.Now(), URL: c.nomad.Pages.Job(name),
	}}
	c.runners.mu.Lock()
	// The entry exists before the job, so that a concurrent Start joins this one, and no refresh
	// adopts the job as an earlier server's.
	known := c.runners.entries[id]
	if known == nil {
		c.runners.entries[id] = e
	}
	c.runners.mu.Unlock()
	if known != nil {
		return c.joinStart(ctx, known, priority)
	}
	index, err := c.register(ctx, e, priority)
	c.runners.mu.Lock()
	if err != nil {
		delete(c.runners.entries, id)
	} else {
		c.runners.registered(e, index)
		c.counts.registered(e)
	}
	close(e.recorded)
	c.runners.mu.Unlock()
	if err == nil {
		c.refresher.soon()
	}
	return err
}

func (r *runners) registered(e *entry, index uint64) {
	e.registered = index
	r.highest = max(r.highest, index)
	r.changed(e)
}

// joinStart waits for another Start, and then changes the job's priority if that still matters.
func (c *Cluster) joinStart(ctx context.Context, e *entry, priority runtime.Priority) error {
	select {
	case <-e.recorded:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.runners.mu.Lock()
	there := c.runners.entries[e.runner.ID] == e
	// Priority decides only about placement, so it no longer matters when the runner has an
	// allocation.
	matters := there && priority != e.priority && e.runner.State == runtime.RunnerStarting && e.allocation == "" && !e.removing
	if matters {
		e.priority = priority
	}
	c.runners.mu.Unlock()
	switch {
	case !there:
		return runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s couldn't be registered", e.runner.ID)
	case !matters:
		return nil
	}
	index, err := c.register(ctx, e, priority)
	if err != nil {
		return err
	}
	c.runners.mu.Lock()
	defer c.runners.mu.Unlock()
	c.runners.registered(e, index)
	return nil
}

// register registers e's job in its turn, or again with another priority. If the job exists
// already, an earlier attempt registered it.
func (c *Cluster) register(ctx context.Context, e *entry, priority runtime.Priority) (uint64, error) {
	env, began := e.runner.Environment, time.Now()
	leave, err := c.gate.Waiter(env.Tenant, string(env.ID), priority).Enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	c.runners.mu.Lock()
	// The index is read after the turn came, since another Start may have registered the job
	// meanwhile. 0 makes Nomad reject the registration if the job exists.
	index := e.registered
	c.runners.mu.Unlock()
	// A change of the priority isn't part of a start, so it isn't measured.
	if index == 0 {
		began = c.counts.Observe(health.PhaseTurn, began)
	}
	template, err := c.environments.Template(ctx, env)
	if err != nil {
		return 0, err
	}
	wanted, access, err := c.config.Jobs.RenderRunner(template, e.runner.ID, env, priority, e.runner.CreatedAt)
	if err != nil {
		return 0, err
	}
	c.runners.mu.Lock()
	e.access = access
	c.runners.mu.Unlock()
	registered := uint64(0)
	err = c.nomad.Call(ctx, fmt.Sprintf("start runner %s", e.runner.ID), func(ctx context.Context) error {
		response, _, err := c.nomad.API().Jobs().EnforceRegister(wanted, index, connection.Writing(ctx))
		if err == nil {
			registered = response.JobModifyIndex
			return nil
		}
		// A job of this name exists. It is ours if an earlier attempt registered it, and its answer
		// was lost.
		if !connection.Enforced(err) {
			return err
		}
		stored, _, err := c.nomad.API().Jobs().Info(*wanted.ID, connection.Query(ctx))
		if err == nil && !job.SameRunner(stored, wanted) {
			return runtime.Errorf(runtime.CodeConflict, "another job named %s exists already", *wanted.ID)
		}
		if err == nil {
			registered = *stored.JobModifyIndex
		}
		return err
	})
	if err == nil && index == 0 {
		c.counts.Observe(health.PhaseRegister, began)
	}
	return registered, err
}
