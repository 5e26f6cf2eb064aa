package nomad

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

const removeWithin = time.Minute

// removeAllWithin bounds the removal of all runners, so that a server ends within 5 s. After that
// time all jobs have been purged, and the next server deletes the rest.
const removeAllWithin = 3 * time.Second

// inTransit is how long a registration may be in transit after its Start was given up.
const inTransit = 200 * time.Millisecond

// removeAll removes all runners in Nomad until there are none. The error says how many may be left.
func (c *Cluster) removeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, removeAllWithin,
		runtime.Errorf(runtime.CodeClusterUnavailable, "runners weren't removed within %s", removeAllWithin))
	defer cancel()
	began := time.Now()
	for {
		if err := c.refresher.Join(ctx); err != nil {
			return runtime.Wrap(runtime.CodeClusterUnavailable, err, "runners are left: Nomad doesn't list them")
		}
		// Remove waits until a list was read once.
		c.refresher.first()
		c.runners.mu.Lock()
		all := slices.Collect(maps.Keys(c.runners.entries))
		c.runners.mu.Unlock()
		// An empty list isn't enough: a registration that was given up may still reach Nomad.
		if left := inTransit - time.Since(began); len(all) == 0 && left <= 0 {
			return nil
		} else if len(all) == 0 {
			_ = backoff.Sleep(ctx, left)
		}
		errs := make([]error, len(all))
		var removals sync.WaitGroup
		for i, id := range all {
			removals.Go(func() { errs[i] = c.Remove(ctx, id) })
		}
		removals.Wait()
		if err := errors.Join(errs...); err != nil {
			return runtime.Wrap(runtime.CodeClusterUnavailable, c.nomad.Redact(err), "some of %d runners aren't known to have ended: a server that is started and stopped again removes them", len(all))
		}
	}
}

// A removal is a Remove in progress. Done is closed when err is set.
type removal struct {
	done chan struct{}
	err  error
}

// Remove implements runtime.Cluster. The removal continues when ctx ends. Another Remove joins it
// or, if it failed, tries again.
func (c *Cluster) Remove(ctx context.Context, id runtime.RunnerID) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	c.runners.mu.Lock()
	e := c.runners.entries[id]
	if e == nil {
		c.runners.mu.Unlock()
		return nil
	}
	r := e.removal
	if r == nil {
		r = &removal{done: make(chan struct{})}
		if _, ok := c.group.Go(func(ctx context.Context) { c.remove(ctx, e, r) }); !ok {
			c.runners.mu.Unlock()
			return c.group.Cause()
		}
		e.removal, e.removing = r, true
		if e.advance(runtime.RunnerStopping) && e.allocation != "" {
			c.counts.Kills.Add(1)
		}
		c.runners.changed(e)
	}
	c.runners.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// remove ends a runner, and publishes the result to all callers of Remove that joined r.
func (c *Cluster) remove(ctx context.Context, e *entry, r *removal) {
	ctx, cancel := context.WithTimeoutCause(ctx, removeWithin,
		runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s was stopped, but its node hasn't reported that it ended", e.runner.ID))
	defer cancel()
	err := c.endRunner(ctx, e)
	c.runners.mu.Lock()
	// Another Remove may try again.
	e.removal = nil
	r.err = err
	if err != nil && c.group.Cause() == nil {
		c.counts.RemovalFailures.Add(1)
		e.leak = err.Error()
	}
	if err == nil {
		if c.runners.entries[e.runner.ID] == e { // false if its Start failed: a new one may have begun
			delete(c.runners.entries, e.runner.ID)
		}
		c.runners.change++
		// Lists that began earlier may still have its job.
		c.runners.removed[e.runner.ID] = c.runners.change
		c.runners.remember(e)
	}
	env := e.runner.Environment.ID
	c.runners.mu.Unlock()
	close(r.done)
	c.changes.Send(env)
}

// endRunner purges a runner's job, waits until its processes have ended, and deletes its variable.
func (c *Cluster) endRunner(ctx context.Context, e *entry) error {
	select {
	case <-e.recorded:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.runners.mu.Lock()
	there, w := c.runners.entries[e.runner.ID] == e, e.waiting
	c.runners.mu.Unlock()
	if !there {
		return nil // its Start failed
	}
	if w != nil { // otherwise it could create the variable again
		w.stop()
		<-w.done
	}
	evaluation, err := c.nomad.PurgeJob(ctx, fmt.Sprintf("stop runner %s", e.runner.ID), c.names().Runner(e.runner.ID))
	if err != nil {
		return err
	}
	c.bridges.Drop(e.runner.ID)
	if err := c.awaitEnd(ctx, e, evaluation); err != nil {
		return err
	}
	// The variable goes last. If the server dies before this, the next one finds the variable, and
	// finishes the removal.
	return c.records.Delete(ctx, e.runner.ID)
}

// awaitEnd waits until no allocation of e runs or will run. Nomad sends no event when an allocation
// of a purged job ends, but the lists, which all removals share, report it.
func (c *Cluster) awaitEnd(ctx context.Context, e *entry, evaluation string) error {
	for p := connection.Backoff(); evaluation != ""; { // until the evaluation ends, it may still create an allocation
		over := false
		err := c.nomad.Call(ctx, fmt.Sprintf("stop runner %s", e.runner.ID), func(ctx context.Context) error {
			eval, _, err := c.nomad.API().Evaluations().Info(evaluation, connection.Query(ctx))
			over = connection.NotFound(err) || err == nil && eval.Status != api.EvalStatusPending
			return connection.IgnoreNotFound(err)
		})
		if err != nil {
			return err
		}
		if over {
			break
		}
		if err := p.Wait(ctx); err != nil {
			return err
		}
	}
	p := connection.Backoff()
	// Each round is a refresh, which all removals share.
	p.Last = 300 * time.Millisecond
	for {
		c.runners.mu.Lock()
		// Only a listing that begins after this may say that the allocations ended. An earlier one
		// may lack an allocation that the evaluation created.
		e.settled = false
		c.runners.mu.Unlock()
		if err := c.refresher.Join(ctx); err != nil {
			return err
		}
		c.runners.mu.Lock()
		settled := e.settled
		c.runners.mu.Unlock()
		if settled {
			return nil
		}
		if err := p.Wait(ctx); err != nil {
			return err
		}
	}
}
