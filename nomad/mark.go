package nomad

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// Mark costs one conditional write of a variable. It returns CONFLICT for a
// runner that still starts.
func (c *Cluster) Mark(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	e, err := c.find(id)
	var next record
	if err == nil && e.ready == nil {
		err = runtime.Errorf(runtime.CodeConflict, "runner %s isn't ready", id)
	}
	if err == nil {
		next = record{environment: e.runner.Environment.ID, allocation: e.ready.allocation, restarts: e.ready.restarts, claim: claim, index: e.variable}
	}
	known := runtime.Claim{}
	if err == nil {
		known = e.runner.Claim
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case known.Equal(claim):
		return nil
	case known.Epoch != claim.Epoch-1:
		return stale(id, known)
	case next.index == 0: // it can't be: a variable makes a runner ready
		return runtime.Errorf(runtime.CodeClusterUnavailable, "the claim of runner %s isn't known", id)
	}
	stored, done, err := c.writeRecord(ctx, id, next)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if stored.index > e.variable {
		e.variable, e.runner.Claim = stored.index, stored.claim
		if stored.claim.Held() {
			e.advance(runtime.RunnerClaimed)
		}
		c.changed(e)
	}
	_, err = c.find(id)
	c.mu.Unlock()
	switch {
	case err != nil || stored.index == 0: // it was removed meanwhile, and its variable with it
		return gone(id)
	case !done:
		return stale(id, stored.claim)
	}
	c.prefer(e.id)
	return nil
}

func stale(id runtime.RunnerID, stored runtime.Claim) error {
	return runtime.Errorf(runtime.CodeConflict, "runner %s is at epoch %d of its claim", id, stored.Epoch)
}

// Runners implements runtime.Cluster, with what a list said that began after the
// call, or half a second before it at most. What this server itself did is
// always in it: that a runner got ready needn't wait for a list. What is found
// out later is hinted at.
func (c *Cluster) Runners(ctx context.Context, env runtime.EnvironmentID) ([]runtime.Runner, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	if c.lists.since() > mostGap {
		if err := c.look(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]runtime.Runner, 0, len(c.entries))
	for _, e := range c.entries {
		if env == "" || e.runner.Environment.ID == env {
			all = append(all, e.runner)
		}
	}
	return all, nil
}

// Evidence tells what Nomad saw: tasks that were killed because memory was full.
// What the agent counts in its own runner, it tells with an execution's end.
func (c *Cluster) Evidence(ctx context.Context, id runtime.RunnerID) (runtime.Evidence, error) {
	if err := c.ready(ctx); err != nil {
		return runtime.Evidence{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	if e == nil || e.removing {
		return runtime.Evidence{}, gone(id)
	}
	return runtime.Evidence{OOMKills: e.oom}, nil
}
