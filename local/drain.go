package local

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/runtime"
)

// SetDraining starts or ends draining the machine; if it is already so, that is success. The
// setting is stored, so it survives a restart. While the machine drains, nothing is placed and no
// idle runner can be claimed; registered runners keep their turns in the scheduler. Unclaimed
// runners are removed with DRAINED; claimed ones end as usual. After an error the setting may have
// changed or not: call it again.
func (c *Cluster) SetDraining(ctx context.Context, draining bool) error {
	return c.drainTurn.Do(ctx, func() error {
		if draining != c.Draining() {
			since := time.Time{}
			if draining {
				since = time.Now().Truncate(time.Millisecond) // as it is stored
			}
			// The setting is stored first: if the server is killed now, the next one drains the
			// machine.
			if err := c.config.Store.SetDraining(ctx, since); err != nil {
				return fmt.Errorf("store whether the machine drains: %w", err)
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
		// Pause comes before endUnclaimed: after it, no further runner is placed.
		if err := c.scheduler.Pause(ctx); err != nil {
			return err
		}
		return c.endUnclaimed(ctx)
	})
}

// Draining reports whether the machine is draining.
func (c *Cluster) Draining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.draining.IsZero()
}

// endUnclaimed ends the runners that have an allocation and no claim.
func (c *Cluster) endUnclaimed(ctx context.Context) error {
	var placed []*entry
	c.mu.Lock()
	for _, e := range c.entries {
		if e.placed {
			placed = append(placed, e)
		}
	}
	c.mu.Unlock()
	for _, e := range placed {
		if held, err := c.held(ctx, e); err != nil {
			return err
		} else if !held {
			c.end(e, runner.Exit{Reason: runtime.GoneDrained, Message: "the machine was drained"})
		}
	}
	return nil
}

// drainingStatus returns the progress of draining, and nil if the machine isn't draining. The caller
// holds mu.
func (c *Cluster) drainingStatus() *runtime.Draining {
	if c.draining.IsZero() {
		return nil
	}
	d := &runtime.Draining{Since: c.draining}
	for _, e := range c.entries {
		switch {
		case e.info.State == runtime.RunnerGone || !e.placed:
		case e.info.Claim.Held():
			d.Claimed++
		default:
			d.Leaving++
		}
	}
	return d
}

// drainingRemark returns the remark for the health status: draining is intended and no problem.
func drainingRemark(d runtime.Draining) string {
	left := "no runners are left"
	if d.Claimed+d.Leaving > 0 {
		left = fmt.Sprintf("%d claimed runners are left, and %d others are being removed", d.Claimed, d.Leaving)
	}
	return "draining: no runner starts until you run rockpool drain --off; " + left
}
