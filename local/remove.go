package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rockpool/rockpool/runtime"
)

// Remove implements runtime.Cluster. It goes on when ctx ends; another Remove
// joins it, or tries again after a failure.
func (c *Cluster) Remove(ctx context.Context, id runtime.RunnerID) error {
	c.mu.Lock()
	e, ok := c.entries[id]
	if !ok {
		c.mu.Unlock()
		return nil
	}
	if c.stopping && e.removing == nil {
		c.mu.Unlock()
		return errStopping()
	}
	r := c.startRemoval(e, c.forget)
	c.mu.Unlock()
	c.changes.send(e.environment)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startRemoval removes e in the background, then calls finish; or it joins the
// removal that is at work. The caller holds mu.
func (c *Cluster) startRemoval(e *entry, finish func(context.Context, *entry) error) *removal {
	if e.removing != nil {
		return e.removing
	}
	r := &removal{done: make(chan struct{})}
	e.removing = r
	e.advance(runtime.RunnerStopping)
	if e.making != nil {
		e.making.cancel(errors.New("it is being removed"))
	}
	c.tasks.Go(func() {
		c.removals <- struct{}{}
		defer func() { <-c.removals }()
		ctx, cancel := context.WithTimeout(context.Background(), cleanWithin)
		defer cancel()
		err := c.tearDown(ctx, e)
		if err == nil {
			err = finish(ctx, e)
		}
		if err != nil {
			r.err = runtime.Wrap(runtime.CodeClusterUnavailable, err, "remove runner %s", e.id)
			c.mu.Lock()
			e.removing = nil
			c.mu.Unlock()
		}
		close(r.done)
		c.changes.send(e.environment)
	})
	return r
}

// tearDown removes what there is of e on this machine. Every step may have
// been done before.
func (c *Cluster) tearDown(ctx context.Context, e *entry) error {
	<-e.recorded
	c.mu.Lock()
	making, touched, process := e.making, e.touched, e.process
	c.mu.Unlock()
	if making != nil {
		<-making.done
	}
	if touched {
		_, _ = c.count(e) // the last look
		if err := c.launcher.Remove(ctx, string(e.id), e.private.Group); err != nil {
			return err
		}
	}
	if process != nil {
		_ = process.Close()
	}
	return c.release(e.id, e.private)
}

// release gives back a runner's user ids, which nothing uses any more, and
// deletes its directory.
func (c *Cluster) release(id runtime.RunnerID, p private) error {
	dir := c.runnerDir(id)
	if err := c.ranges.Release(p.Slot, dir); err != nil {
		return fmt.Errorf("release user ids %d: %w", p.Slot, err)
	}
	return os.RemoveAll(dir)
}

// forget deletes the record of a runner that was torn down.
func (c *Cluster) forget(ctx context.Context, e *entry) error {
	return e.write(ctx, func() error {
		if err := c.config.Store.DeleteRunner(ctx, e.id); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.entries, e.id)
		return nil
	})
}
