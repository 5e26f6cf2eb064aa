package local

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
)

// Start implements runtime.Cluster. The record is stored, with the group and
// the range of user ids, before anything is made.
func (c *Cluster) Start(ctx context.Context, id runtime.RunnerID, env runtime.Environment, priority runtime.Priority) error {
	if !helper.ValidID(string(id)) {
		return runtime.Invalid("id", "must be 1 to 64 letters, digits, '_' and '-'")
	}
	if err := sandbox.Supported(env); err != nil {
		return err
	}
	if c.unready != nil {
		return runtime.Wrap(runtime.CodeClusterUnavailable, c.unready, "this machine can't start runners")
	}
	e := newEntry(runtime.Runner{ID: id, Environment: env, State: runtime.RunnerStarting, CreatedAt: time.Now()}, priority)
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
		return c.joinStart(ctx, known)
	}
	err := c.record(ctx, e)
	c.mu.Lock()
	if err != nil {
		delete(c.entries, id)
	} else {
		c.queue.push(e)
		c.queued.Signal()
	}
	c.mu.Unlock()
	close(e.recorded)
	c.changes.send(e.environment)
	return err
}

// joinStart waits until another Start of the same runner stored it.
func (c *Cluster) joinStart(ctx context.Context, e *entry) error {
	select {
	case <-e.recorded:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[e.id] != e {
		return runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s could not be recorded", e.id)
	}
	return nil
}

// record takes a range of user ids and stores what is needed to clean up.
func (c *Cluster) record(ctx context.Context, e *entry) error {
	dir := c.runnerDir(e.id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "start runner %s", e.id)
	}
	slot, err := c.ranges.Take(dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "start runner %s", e.id)
	}
	e.private = private{Slot: slot, Group: sandbox.Group(c.config.CgroupParent, string(e.id))}
	if err := c.put(ctx, e, e.runner); err != nil {
		_ = c.ranges.Release(slot, dir)
		_ = os.RemoveAll(dir)
		return fmt.Errorf("start runner %s: %w", e.id, err)
	}
	return nil
}

func errStopping() error {
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")
}
