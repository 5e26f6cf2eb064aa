package local

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// Run makes runners until ctx ends. Then it removes them all with their
// processes, mounts and groups, and returns what could not be removed. A
// runner that was claimed stays recorded, so that the next server lists it as
// GONE. The Cluster can't be used afterwards.
func (c *Cluster) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range c.config.Parallel {
		workers.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	c.mu.Lock()
	c.stopping = true
	var removals []*removal
	for e := range maps.Values(c.entries) {
		finish := c.forget
		if e.runner.Claim.Held() {
			finish = c.leaveGone
		}
		removals = append(removals, c.startRemoval(e, finish))
	}
	c.mu.Unlock()
	workers.Wait()
	var errs []error
	for r := range slices.Values(removals) {
		<-r.done
		errs = append(errs, r.err)
	}
	c.closeProcesses()
	c.tasks.Wait()
	c.Close()
	return errors.Join(errs...)
}

// leaveGone stores that the server stopped a claimed runner.
func (c *Cluster) leaveGone(ctx context.Context, e *entry) error {
	return e.write(ctx, func() error {
		c.mu.Lock()
		r := stoppedOutside(e.runner)
		c.mu.Unlock()
		return c.put(ctx, e, r)
	})
}

// stoppedOutside returns r GONE, for its own reason where it has one.
func stoppedOutside(r runtime.Runner) runtime.Runner {
	if r.State != runtime.RunnerGone {
		r.State, r.GoneReason, r.Message = runtime.RunnerGone, runtime.GoneStoppedOutside, "the server was restarted"
	}
	return r
}

// closeProcesses ends the watchers of what could not be removed.
func (c *Cluster) closeProcesses() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.process != nil {
			_ = e.process.Close()
		}
	}
}
