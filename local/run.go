package local

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/runtime"
)

// Run runs the cluster until ctx ends. Then it removes all runners with their processes, mounts and
// groups, and returns what couldn't be removed. The record of a claimed runner stays, so the next
// server lists it as GONE. With Config.Keep it leaves all runners running for the next server
// instead. Run waits for every goroutine of the cluster. It is called once; the Cluster can't be
// used afterwards.
func (c *Cluster) Run(ctx context.Context) error {
	var parts, images sync.WaitGroup
	parts.Go(func() { c.scheduler.Run(ctx) })
	parts.Go(func() { c.measureAtIntervals(ctx) })
	parts.Go(func() { c.network.Run(ctx) })
	images.Go(func() { c.images.Run(ctx) })
	images.Go(func() { c.runCaches(ctx) })
	<-ctx.Done()
	parts.Wait()
	c.mu.Lock()
	c.stopping = true // from now on Start, Mark and Remove refuse
	ending := slices.Collect(maps.Values(c.entries))
	c.mu.Unlock()
	var errs []error
	if !c.config.Keep {
		errs = c.removeAll(ending)
	}
	// Runners that haven't ended are left to the next server.
	c.leaveRunners()
	images.Wait() // last: deleting images must not delay the end of runners
	c.Close()
	return errors.Join(errs...)
}

// removeAll removes runners concurrently, and forgets those that aren't claimed.
func (c *Cluster) removeAll(all []*entry) []error {
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, e := range all {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*runner.CleanWithin)
			defer cancel()
			if there, _ := c.awaitRecord(ctx, e); !there {
				return // its Start failed
			}
			c.mu.Lock()
			e.removing = true
			e.forget = e.forget || !e.info.Claim.Held()
			forget := e.forget
			c.mu.Unlock()
			wait := e.runner.Tried()
			c.end(e, runner.Exit{Reason: runtime.GoneStoppedOutside, Message: "the server was restarted"})
			if forget {
				errs[i] = c.awaitRemoval(ctx, e, wait)
			} else {
				errs[i] = wait(ctx)
			}
		})
	}
	group.Wait()
	return errs
}

// leaveRunners ends the goroutines that lead runners, and waits for them. The runners stay as they
// are.
func (c *Cluster) leaveRunners() {
	c.mu.Lock()
	c.stopping, c.left = true, true
	c.mu.Unlock()
	c.leave(errStopping())
	c.leading.Wait()
}
