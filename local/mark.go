package local

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// Mark implements runtime.Cluster at the cost of one write to the store. CONFLICT: the runner is
// still starting.
func (c *Cluster) Mark(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	c.mu.Lock()
	e, err := c.markable(id)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return e.turn.Do(ctx, func() error {
		// It may have ended or been removed while this call waited for its turn.
		c.mu.Lock()
		_, err := c.markable(id)
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

// markable returns the entry of a runner that is claimed or can be. The caller holds mu.
func (c *Cluster) markable(id runtime.RunnerID) (*entry, error) {
	e, ok := c.entries[id]
	switch {
	case c.stopping:
		return nil, errStopping()
	case ok && !e.info.Claim.Held() && !c.draining.IsZero():
		return nil, runtime.Errorf(runtime.CodeClusterUnavailable, "the machine is being drained; end that with rockpool drain --off")
	case !ok || e.removing || e.info.State == runtime.RunnerStopping || e.info.State == runtime.RunnerGone:
		return nil, gone(id)
	case e.info.State == runtime.RunnerStarting:
		return nil, runtime.Errorf(runtime.CodeConflict, "runner %s isn't ready: it is still starting", id)
	}
	return e, nil
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
