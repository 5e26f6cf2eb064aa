package local

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

// Start implements runtime.Cluster. The record is stored before anything is made. Start returns
// when the runner is registered with the scheduler, not when it has started.
func (c *Cluster) Start(ctx context.Context, id runtime.RunnerID, env runtime.Environment, priority runtime.Priority) error {
	if !helper.ValidID(string(id)) {
		return runtime.Invalid("id", "must be 1 to 64 letters, digits, '_' and '-'")
	}
	if err := c.supported(env); err != nil {
		return err
	}
	if err := c.host.Ready(); err != nil {
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "this machine can't start runners now")
	}
	r := runtime.Runner{ID: id, Environment: env, State: runtime.RunnerStarting, CreatedAt: time.Now()}
	// The entry exists before its record, so that a concurrent Start or Remove finds it.
	e := c.newEntry(r, priority, runner.Record{})
	c.mu.Lock()
	known, stopping := c.entries[id], c.stopping
	if known == nil && !stopping {
		c.entries[id] = e
	}
	c.mu.Unlock()
	switch {
	case stopping:
		return errStopping()
	case known != nil:
		return c.joinStart(ctx, known, priority)
	}
	err := c.put(ctx, r, runner.Record{Group: e.runner.Sandbox.Group})
	if err != nil {
		err = fmt.Errorf("start runner %s: %w", id, err)
		c.mu.Lock()
		delete(c.entries, id)
		c.mu.Unlock()
	} else {
		err = c.scheduler.Register(e.job)
	}
	c.mu.Lock()
	// Remove reads recorded and sets removing under the same lock, so exactly one of the two calls
	// ends the runner.
	close(e.recorded)
	removing := e.removing && err == nil
	c.mu.Unlock()
	if removing { // Remove was called while the record was being stored
		c.end(e, runner.Exit{})
	}
	c.changes.Send(e.environment)
	return err
}

// joinStart waits until a concurrent Start of the same runner has stored it, and then applies this
// call's priority.
func (c *Cluster) joinStart(ctx context.Context, e *entry, priority runtime.Priority) error {
	there, err := c.awaitRecord(ctx, e)
	switch {
	case err != nil:
		return err
	case !there:
		return runtime.Errorf(runtime.CodeClusterUnavailable, "the record of runner %s couldn't be stored; try again", e.id)
	}
	e.pass.SetPriority(priority) // it may have an allocation and wait for its turn to be made
	c.mu.Lock()
	started := e.started
	c.mu.Unlock()
	if started { // it has or had its allocation, which the scheduler may have forgotten
		return nil
	}
	again := e.job
	again.Priority = priority
	return c.scheduler.Register(again)
}

// errStopping returns the error of calls while the server stops.
func errStopping() error {
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")
}

// Mark implements runtime.Cluster at the cost of one write to the store. CONFLICT: the runner is
// still starting.
func (c *Cluster) Mark(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	c.mu.Lock()
	e, stopping := c.entries[id], c.stopping
	c.mu.Unlock()
	switch {
	case stopping:
		return errStopping()
	case e == nil:
		return gone(id)
	}
	return e.turn.Do(ctx, func() error {
		c.mu.Lock()
		err := c.markable(e)
		c.mu.Unlock()
		if err != nil {
			return err
		}
		if err := c.config.Store.MarkRunner(ctx, id, claim); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		e.info.Claim = claim
		e.info.Advance(runtime.RunnerClaimed)
		return nil
	})
}

// markable returns an error unless a runner is claimed or can be. The caller holds mu.
func (c *Cluster) markable(e *entry) error {
	switch {
	case c.stopping:
		return errStopping()
	case !e.info.Claim.Held() && !c.draining.IsZero():
		return runtime.Errorf(runtime.CodeClusterUnavailable, "the machine is being drained; end that with rockpool drain --off")
	case e.removing || e.runner.Ending() || !e.info.State.Before(runtime.RunnerStopping):
		return gone(e.id)
	case e.info.State == runtime.RunnerStarting:
		return runtime.Errorf(runtime.CodeConflict, "runner %s isn't ready: it is still starting", e.id)
	}
	return nil
}

// Runners implements runtime.Cluster, from memory.
func (c *Cluster) Runners(_ context.Context, env runtime.EnvironmentID) ([]runtime.Runner, error) {
	c.mu.Lock()
	all := make([]runtime.Runner, 0, len(c.entries))
	var waiting []int
	for _, e := range c.entries {
		if env == "" || e.environment == env {
			if e.info.State == runtime.RunnerStarting && !e.started {
				waiting = append(waiting, len(all))
			}
			all = append(all, e.info)
		}
	}
	c.mu.Unlock()
	for _, i := range waiting {
		all[i].Message, all[i].Lacks = c.scheduler.Waiting(all[i].ID)
	}
	return all, nil
}

// Remove implements runtime.Cluster. It continues in the background when ctx ends; a concurrent
// Remove joins it. A removal that fails is retried for some minutes; after that each call of Remove
// is one more try.
func (c *Cluster) Remove(ctx context.Context, id runtime.RunnerID) error {
	c.mu.Lock()
	e, ok := c.entries[id]
	if !ok {
		c.mu.Unlock()
		return nil
	}
	if c.stopping && !e.removing {
		c.mu.Unlock()
		return errStopping()
	}
	first, again := !e.removing, c.leaks[id]
	e.removing, e.forget = true, true
	select {
	case <-e.recorded:
	default:
		first = false // Start ends it after storing the record
	}
	c.mu.Unlock()
	wait := e.runner.Tried()
	if first || again {
		c.end(e, runner.Exit{})
	}
	return c.awaitRemoval(ctx, e, wait)
}

// end ends a runner, whether it has its allocation, waits for it, or has ended already. The end of
// its goroutine frees its room, so the scheduler must know before that it is no longer wanted.
func (c *Cluster) end(e *entry, exit runner.Exit) {
	c.scheduler.Deregister(e.id)
	e.runner.Stop(exit)
	c.lead(e)
}

// awaitRemoval waits until nothing is left of a runner that is to be forgotten. It returns ctx's
// cause when ctx ends, and CLUSTER_UNAVAILABLE when the removal failed. wait is from Tried.
func (c *Cluster) awaitRemoval(ctx context.Context, e *entry, wait func(context.Context) error) error {
	if there, err := c.awaitRecord(ctx, e); err != nil || !there {
		return err
	}
	if err := wait(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "remove runner %s", e.id)
	}
	return e.turn.Do(ctx, func() error {
		c.mu.Lock()
		known := c.entries[e.id] == e
		c.mu.Unlock()
		if !known {
			return nil
		}
		defer c.changes.Send(e.environment)
		return c.delete(ctx, e) // it ended before Remove was called, so its record was kept
	})
}

// awaitRecord waits until Start has stored e, and reports whether that succeeded.
func (c *Cluster) awaitRecord(ctx context.Context, e *entry) (bool, error) {
	select {
	case <-e.recorded:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[e.id] == e, nil
}

// delete deletes a runner's record and entry. The caller holds e.turn.
func (c *Cluster) delete(ctx context.Context, e *entry) error {
	// After an error the entry stays, so Remove can be called again.
	if err := c.config.Store.DeleteRunner(ctx, e.id); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.entries, e.id)
	c.past.Add(e.id, health.RemovedRunner{Environment: e.environment, Events: e.runner.Events()})
	c.mu.Unlock()
	e.runner.Sandbox.Counters.Close()
	if parent := path.Dir(e.runner.Sandbox.Group); parent != "/"+c.config.CgroupParent {
		c.host.Trees.Prune(parent) // the parent of an earlier configuration
	}
	return nil
}
