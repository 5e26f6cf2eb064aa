package local

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// drained is the end of a runner that nobody held when the machine was drained.
var drained = taskrunner.End{Reason: runtime.GoneDrained, Message: "the machine was drained"}

func errDraining() error {
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the machine is being drained")
}

// SetDraining drains the machine, or ends that; what is so already is success.
// While it drains, durably, nothing is placed and nobody new can claim: what is
// wished for keeps its turn in the scheduler. Runners that nobody holds go, with
// DRAINED; the others end as they would. After an error it may be so or not,
// and asking again makes it so.
func (c *Cluster) SetDraining(ctx context.Context, draining bool) error {
	return c.drainTurn.Do(ctx, func() error { return c.setDraining(ctx, draining) })
}

func (c *Cluster) setDraining(ctx context.Context, draining bool) error {
	c.mu.Lock()
	since := c.draining
	c.mu.Unlock()
	if draining == since.IsZero() {
		if since = (time.Time{}); draining {
			since = time.Now().Truncate(time.Millisecond) // as it is stored
		}
		if err := c.config.Store.SetDraining(ctx, since); err != nil {
			return fmt.Errorf("store that the machine is drained, or not: %w", err)
		}
		c.mu.Lock()
		c.draining = since
		c.mu.Unlock()
	}
	defer c.changes.Send("")
	if !draining {
		c.scheduler.Resume()
		return nil
	}
	if err := c.scheduler.Pause(ctx); err != nil {
		return err
	}
	return c.endUnheld(ctx)
}

// Draining reports whether the machine is being drained.
func (c *Cluster) Draining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.draining.IsZero()
}

// restoreDraining has what the last server was told hold. Nothing is being placed
// yet: a worker that waits for the end of the restore would be waited for here.
// What is restored and unheld is ended after that.
func (c *Cluster) restoreDraining(ctx context.Context) error {
	since, err := c.config.Store.Draining(ctx)
	if err != nil || since.IsZero() {
		return err
	}
	c.mu.Lock()
	c.draining = since
	c.mu.Unlock()
	return c.scheduler.Pause(ctx)
}

// endUnheld ends the runners that have a place and no holder. One that got its
// place just before, unseen, is ended when that is carried out.
func (c *Cluster) endUnheld(ctx context.Context) error {
	c.mu.Lock()
	var placed []*entry
	for _, e := range c.entries {
		if e.allocation != "" {
			placed = append(placed, e)
		}
	}
	c.mu.Unlock()
	for _, e := range placed {
		if err := c.drainRunner(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// drainRunner ends a runner unless somebody holds it. It takes its turn after a
// claim that is being stored: who was answered keeps what was given.
func (c *Cluster) drainRunner(ctx context.Context, e *entry) error {
	held := false
	err := e.turn.Do(ctx, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		held = e.runner.Claim.Held()
		return nil
	})
	if err == nil && !held {
		e.task.Stop(drained)
		c.scheduler.Deregister(e.id)
	}
	return err
}

// drainingStatus tells how far it has come. The caller holds mu.
func (c *Cluster) drainingStatus() *runtime.Draining {
	if c.draining.IsZero() {
		return nil
	}
	d := &runtime.Draining{Since: c.draining}
	for _, e := range c.entries {
		switch {
		case e.allocation == "" || e.runner.State == runtime.RunnerGone:
		case e.runner.Claim.Held():
			d.Claimed++
		default:
			d.Leaving++
		}
	}
	return d
}

// drainingProblem has health say so.
func drainingProblem(d runtime.Draining) runtime.Problem {
	left := "no runner is left"
	if d.Claimed+d.Leaving > 0 {
		left = fmt.Sprintf("%d claimed runners are left, and %d others that go", d.Claimed, d.Leaving)
	}
	return runtime.Problem{Subject: "draining", Message: "no runner starts until that is ended (rockpool drain --off); " + left, Since: d.Since}
}
