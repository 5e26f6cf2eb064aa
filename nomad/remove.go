package nomad

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// removeWithin bounds one try to remove a runner.
const removeWithin = time.Minute

// A removal is under way.
type removal struct {
	done chan struct{}
	err  error
}

// Remove implements runtime.Cluster. It goes on when ctx ends; another Remove
// joins it, or, after one that failed, tries again.
func (c *Cluster) Remove(ctx context.Context, id runtime.RunnerID) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	e := c.entries[id]
	if e == nil {
		c.mu.Unlock()
		return nil
	}
	r := e.removal
	if r == nil {
		if c.ended {
			c.mu.Unlock()
			return errStopping()
		}
		r = &removal{done: make(chan struct{})}
		e.removal, e.removing = r, true
		e.advance(runtime.RunnerStopping)
		c.changed(e)
		c.workers.Go(func() { c.remove(c.life, e, r) })
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Cluster) remove(ctx context.Context, e *entry, r *removal) {
	ctx, cancel := context.WithTimeoutCause(ctx, removeWithin,
		runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s is stopped, but its node doesn't say that it has ended", e.id))
	defer cancel()
	err := c.endRunner(ctx, e)
	c.mu.Lock()
	e.removal = nil
	r.err = err
	if err == nil {
		if c.entries[e.id] == e { // else its Start failed, and another one may have begun
			delete(c.entries, e.id)
		}
		c.change++
		c.removed[e.id] = c.change
		c.remember(e)
	}
	env := e.runner.Environment.ID
	c.mu.Unlock()
	close(r.done)
	c.changes.send(env)
}

// endRunner ends a runner, waits until its processes are gone, and deletes what
// Nomad keeps of it.
func (c *Cluster) endRunner(ctx context.Context, e *entry) error {
	select {
	case <-e.recorded:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.mu.Lock()
	there, w := c.entries[e.id] == e, e.warming
	c.mu.Unlock()
	if !there {
		return nil // its Start failed
	}
	if w != nil { // or it might make the variable anew
		w.stop()
		<-w.done
	}
	evaluation := ""
	err := c.call(ctx, fmt.Sprintf("stop runner %s", e.id), func(ctx context.Context) error {
		var err error
		evaluation, _, err = c.nomad.calls.Jobs().Deregister(c.names.runner(e.id), true, writing(ctx))
		if notFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	c.bridges.drop(e.id)
	if err := c.awaitEnd(ctx, e, evaluation); err != nil {
		return err
	}
	return c.deleteRecord(ctx, e.id)
}

// awaitEnd waits until no allocation of e runs, or is to: no event tells the
// end of one whose job was purged, but the lists that all removals share do.
func (c *Cluster) awaitEnd(ctx context.Context, e *entry, evaluation string) error {
	for p := (pauses{}); evaluation != ""; { // until then an allocation may still be made
		over := false
		err := c.call(ctx, fmt.Sprintf("stop runner %s", e.id), func(ctx context.Context) error {
			eval, _, err := c.nomad.calls.Evaluations().Info(evaluation, query(ctx))
			over = notFound(err) || err == nil && eval.Status != api.EvalStatusPending
			if over {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		if over {
			break
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
	for p := (pauses{}); ; {
		c.mu.Lock()
		e.settled = false
		c.mu.Unlock()
		if err := c.look(ctx); err != nil {
			return err
		}
		c.mu.Lock()
		settled := e.settled
		c.mu.Unlock()
		if settled {
			return nil
		}
		if err := p.waitUpTo(ctx, 300*time.Millisecond); err != nil {
			return err
		}
	}
}
