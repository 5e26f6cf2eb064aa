package local

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// Run runs the cluster until ctx ends. Then it removes all runners with their processes, mounts and
// groups, and returns what couldn't be removed. The record of a claimed runner stays, so the next
// server lists it as GONE. With Config.Keep it leaves all runners running for the next server
// instead. Run waits for every goroutine that it started. It is called once; the Cluster can't be
// used afterwards.
func (c *Cluster) Run(ctx context.Context) error {
	// Tasks run under watching, which outlives ctx, because they carry out the removals below.
	watching, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer leave(nil)
	var tasks, parts, images sync.WaitGroup
	parts.Go(func() { c.placer.Run(ctx) })
	images.Go(func() { c.images.Run(ctx) })
	images.Go(func() { c.runCaches(ctx) })
	parts.Go(func() { c.network.Run(ctx) })
	for ctx.Err() == nil {
		c.lead(watching, &tasks)
		select {
		case <-c.placer.Wake():
		case <-ctx.Done():
		}
	}
	c.placer.Close()
	parts.Wait()
	var errs []error
	ending := c.stopStarting()
	if !c.config.Keep {
		for _, e := range ending {
			// Its Start may still be storing the record.
			<-e.recorded
			e.place.HandOver() // also without an allocation: its task must run to end it
		}
		c.lead(watching, &tasks)
		errs = c.removeAll(ending)
	}
	// Tasks that haven't ended return now, and leave their runners to the next server.
	leave(errStopping())
	tasks.Wait()
	images.Wait() // last: deleting images must not delay the end of runners
	c.Close()
	return errors.Join(errs...)
}

// lead starts a goroutine for each task that was handed over since the last call; Run waits for
// them.
func (c *Cluster) lead(ctx context.Context, tasks *sync.WaitGroup) {
	for _, place := range c.placer.Placed() {
		tasks.Go(func() { place.Task.Run(ctx) })
	}
}

// stopStarting makes Start, Mark and Remove refuse from now on, and returns all entries.
func (c *Cluster) stopStarting() []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	return slices.Collect(maps.Values(c.entries))
}

// removeAll removes runners concurrently, and forgets those that aren't claimed.
func (c *Cluster) removeAll(all []*entry) []error {
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, e := range all {
		c.mu.Lock()
		e.removing = true
		e.forget = e.forget || !e.runner.Claim.Held()
		forget := e.forget
		c.mu.Unlock()
		e.task.Stop(stoppedOutside)
		group.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*cleanWithin)
			defer cancel()
			if there, _ := c.awaitRecord(ctx, e); !there {
				return // its Start failed
			}
			if forget {
				errs[i] = c.awaitRemoval(ctx, e)
			} else {
				errs[i] = e.task.Wait(ctx)
			}
		})
	}
	group.Wait()
	return errs
}

// stoppedOutside is the end of a claimed runner that the ending server removed.
var stoppedOutside = taskrunner.End{Reason: runtime.GoneStoppedOutside, Message: "the server was restarted"}
