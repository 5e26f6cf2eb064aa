package local

import (
	"context"
	"path"

	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

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
