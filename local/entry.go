package local

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
)

// An entry is one runner that the cluster knows. Its first fields never change after newEntry.
type entry struct {
	id          runtime.RunnerID
	environment runtime.EnvironmentID
	job         scheduler.Job
	runner      *runner.Runner
	pass        *fairqueue.Waiter // its turns to be made, at the priority that was requested last
	recorded    chan struct{}     // closed when the record is stored, or Start failed
	turn        fairqueue.Slots   // capacity 1: held while the record is written to the store, then to memory
	untouched   bool              // the last server registered it and hadn't begun to make it

	// The fields below are guarded by Cluster.mu.
	info     runtime.Runner
	placed   bool // it has an allocation
	started  bool // its goroutine was started
	lost     bool // when this server started, it had ended or its agent didn't answer
	removing bool // Remove was called, or the ending server removes it
	forget   bool // with removing: the record is deleted, too
}

// newEntry returns the entry of a runner. Without a group it gets one below this server's parent.
func (c *Cluster) newEntry(r runtime.Runner, priority runtime.Priority, record runner.Record) *entry {
	if record.Group == "" {
		record.Group = sandbox.Group(c.config.CgroupParent, string(r.ID))
	}
	e := &entry{
		id: r.ID, environment: r.Environment.ID, job: jobOf(r, priority), info: r,
		pass:     c.starts.Waiter(r.Environment.Tenant, string(r.Environment.ID), priority),
		recorded: make(chan struct{}), turn: make(fairqueue.Slots, 1),
	}
	e.runner = runner.New(runner.Config{
		ID: r.ID, Environment: r.Environment, Ports: r.Ports, Host: c.host, Images: c.images, Network: c.network,
		Logger: c.config.Logger, Counts: c.counts, Admit: e.pass.Enter,
		Save: func(ctx context.Context, s runner.Status) error { return c.save(ctx, e, s) },
		Show: func(change func(*runtime.Runner)) {
			c.mu.Lock()
			change(&e.info)
			c.mu.Unlock()
			c.changes.Send(e.environment)
		},
	}, runner.Status{State: r.State, Reason: r.GoneReason, Message: r.Message, Record: record})
	return e
}

func jobOf(r runtime.Runner, priority runtime.Priority) scheduler.Job {
	env := r.Environment
	return scheduler.Job{ID: r.ID, Tenant: env.Tenant, Environment: env.ID, Resources: sandbox.Footprint(env), Priority: priority}
}

// lead starts the goroutine that leads a runner, once, unless the server stops. A runner without an
// allocation must be deregistered and stopped before.
func (c *Cluster) lead(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !e.started && !c.left {
		e.started = true
		c.run(e.runner)
	}
}

// onPlaced leads a runner that has got its allocation. The scheduler calls it.
func (c *Cluster) onPlaced(a runtime.Allocation) {
	c.mu.Lock()
	e := c.entries[a.RunnerID]
	if e != nil {
		e.placed = true
		c.waited.Add(time.Since(e.info.CreatedAt))
	}
	c.mu.Unlock()
	if e != nil {
		c.lead(e)
	}
}

// held reports whether a claim holds a runner. It waits for a claim that is being stored: a client
// whose claim was confirmed keeps the runner.
func (c *Cluster) held(ctx context.Context, e *entry) (held bool, err error) {
	err = e.turn.Do(ctx, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		held = e.info.Claim.Held()
		return nil
	})
	return held, err
}

// put stores a runner with its record. The caller holds e.turn, or is Start.
func (c *Cluster) put(ctx context.Context, r runtime.Runner, record runner.Record) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return c.config.Store.PutRunner(ctx, r, text)
}

// save stores a runner's status in its record, and then shows it in the entry. For one that is
// removed and to be forgotten it deletes the record and the entry.
func (c *Cluster) save(ctx context.Context, e *entry, s runner.Status) error {
	gone := s.State == runtime.RunnerGone
	err := e.turn.Do(ctx, func() error {
		c.mu.Lock()
		r, forget := e.info, e.forget
		c.mu.Unlock()
		if forget && s.Removed {
			return c.delete(ctx, e)
		}
		show(&r, s)
		if err := c.put(ctx, r, s.Record); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		show(&e.info, s)
		return nil
	})
	c.reportLeak(e, s.Leak)
	switch {
	case err == nil && s.State == runtime.RunnerIdle:
		c.scheduler.Update(e.id, runtime.AllocationRunning, "")
	case gone:
		c.mu.Lock()
		show(&e.info, s) // it has ended, even if that wasn't stored
		c.mu.Unlock()
		c.freed(e)
	}
	if err == nil || gone {
		c.changes.Send(e.environment)
	}
	return err
}

// show copies a status to what clients see of the runner. The end of one that is GONE stays.
func show(r *runtime.Runner, s runner.Status) {
	if r.State != runtime.RunnerGone {
		r.Advance(s.State)
		r.GoneReason, r.Message = s.Reason, s.Message
	}
}

// freed reports to the scheduler that a runner's processes have ended, so its room is free.
func (c *Cluster) freed(e *entry) {
	c.mu.Lock()
	status, message := runtime.AllocationFailed, e.info.Message
	switch {
	case e.lost:
		status, message = runtime.AllocationLost, "it had ended when the server restarted"
	case e.removing || e.info.GoneReason == runtime.GoneDrained:
		status, message = runtime.AllocationComplete, ""
	}
	c.mu.Unlock()
	c.scheduler.Update(e.id, status, message)
}

// reportLeak reports in Status what couldn't be removed of a runner, and resolves that problem when
// leak is "".
func (c *Cluster) reportLeak(e *entry, leak string) {
	subject := "runner " + string(e.id)
	c.mu.Lock()
	was := c.leaks[e.id]
	c.leaks[e.id] = leak != ""
	if leak == "" {
		delete(c.leaks, e.id)
	}
	c.mu.Unlock()
	if leak != "" {
		c.problems.Report(subject, leak)
	} else if was {
		c.problems.Resolve(subject)
	}
}

// TaskEvents implements runtime.Cluster, from memory.
func (c *Cluster) TaskEvents(_ context.Context, id runtime.RunnerID) ([]runtime.TaskEvent, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[id]; e != nil {
		return e.runner.Events(), nil
	}
	gone, _ := c.past.Find(id)
	return gone.Events, nil
}

// Evidence implements runtime.Cluster. The last counters stay available until the runner is
// removed.
func (c *Cluster) Evidence(ctx context.Context, id runtime.RunnerID) (runtime.Evidence, error) {
	if ctx.Err() != nil {
		return runtime.Evidence{}, context.Cause(ctx)
	}
	c.mu.Lock()
	e, ok := c.entries[id]
	starting := ok && e.info.State == runtime.RunnerStarting
	c.mu.Unlock()
	switch {
	case !ok:
		return runtime.Evidence{}, gone(id)
	case starting:
		return runtime.Evidence{}, nil
	}
	now, err := e.runner.Evidence(ctx)
	switch {
	case errors.Is(err, runner.ErrNone):
		return runtime.Evidence{}, gone(id)
	case err != nil:
		return runtime.Evidence{}, runtime.Wrap(runtime.CodeInternal, err, "the counters of runner %s can't be read; the server's log says why", id)
	}
	return now, nil
}
