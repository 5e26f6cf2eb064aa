package nomad

import (
	"context"

	"github.com/rockpool/rockpool/nomad/state"
	"github.com/rockpool/rockpool/runtime"
)

// Mark implements runtime.Cluster with one conditional write of a variable. It returns CONFLICT for
// a runner that is starting.
func (c *Cluster) Mark(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	c.runners.mu.Lock()
	e, err := c.runners.find(id)
	if err == nil && e.ready == nil {
		err = runtime.Errorf(runtime.CodeConflict, "runner %s isn't ready", id)
	}
	if err != nil {
		c.runners.mu.Unlock()
		return err
	}
	known := e.runner.Claim
	next := state.Record{Environment: e.runner.Environment.ID, Allocation: e.ready.Allocation, Restarts: e.ready.Restarts, Claim: claim, Index: e.variable}
	c.runners.mu.Unlock()
	switch {
	case known.Equal(claim):
		return nil
	case known.Epoch != claim.Epoch-1:
		return stale(id, known)
	case next.Index == 0: // impossible, because a ready runner has a variable
		return runtime.Errorf(runtime.CodeClusterUnavailable, "the claim of runner %s is unknown: retry", id)
	}
	stored, done, err := c.records.Write(ctx, id, next)
	if err != nil {
		return err
	}
	c.runners.mu.Lock()
	// A refresh may have read a later write meanwhile. The highest index wins.
	if stored.Index > e.variable {
		e.variable, e.runner.Claim = stored.Index, stored.Claim
		if stored.Claim.Held() {
			e.advance(runtime.RunnerClaimed)
		}
		c.runners.changed(e)
	}
	_, err = c.runners.find(id)
	c.runners.mu.Unlock()
	switch {
	case err != nil || stored.Index == 0: // the runner was removed meanwhile, with its variable
		return gone(id)
	case !done:
		return stale(id, stored.Claim)
	}
	c.openEarly(id)
	return nil
}

func stale(id runtime.RunnerID, stored runtime.Claim) error {
	return runtime.Errorf(runtime.CodeConflict, "runner %s is at epoch %d of its claim", id, stored.Epoch)
}
