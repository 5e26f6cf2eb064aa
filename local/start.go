package local

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
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
	led := e.led
	c.mu.Unlock()
	if led { // it has or had its allocation, which the scheduler may have forgotten
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
