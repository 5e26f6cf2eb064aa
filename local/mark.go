package local

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// Mark implements runtime.Cluster at the cost of one write to the store. CONFLICT: the runner is
// still starting.
func (c *Cluster) Mark(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	c.mu.Lock()
	e, stopping := c.entries[id], c.stopping
	c.mu.Unlock()
	switch {
	case stopping:
		return errStopping()
	case e == nil:
		return gone(id)
	}
	return e.turn.Do(ctx, func() error {
		c.mu.Lock()
		err := c.markable(e)
		c.mu.Unlock()
		if err != nil {
			return err
		}
		if err := c.config.Store.MarkRunner(ctx, id, claim); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		e.info.Claim = claim
		e.info.Advance(runtime.RunnerClaimed)
		return nil
	})
}

// markable returns an error unless a runner is claimed or can be. The caller holds mu.
func (c *Cluster) markable(e *entry) error {
	switch {
	case c.stopping:
		return errStopping()
	case !e.info.Claim.Held() && !c.draining.IsZero():
		return runtime.Errorf(runtime.CodeClusterUnavailable, "the machine is being drained; end that with rockpool drain --off")
	case e.removing || e.runner.Ending() || !e.info.State.Before(runtime.RunnerStopping):
		return gone(e.id)
	case e.info.State == runtime.RunnerStarting:
		return runtime.Errorf(runtime.CodeConflict, "runner %s isn't ready: it is still starting", e.id)
	}
	return nil
}

// Runners implements runtime.Cluster, from memory.
func (c *Cluster) Runners(_ context.Context, env runtime.EnvironmentID) ([]runtime.Runner, error) {
	c.mu.Lock()
	all := make([]runtime.Runner, 0, len(c.entries))
	var waiting []int
	for _, e := range c.entries {
		if env == "" || e.environment == env {
			if e.info.State == runtime.RunnerStarting && !e.led {
				waiting = append(waiting, len(all))
			}
			all = append(all, e.info)
		}
	}
	c.mu.Unlock()
	for _, i := range waiting {
		all[i].Message, all[i].Lacks = c.scheduler.Waiting(all[i].ID)
	}
	return all, nil
}
