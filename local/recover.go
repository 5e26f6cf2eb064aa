package local

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
)

// recover removes what the last server left. Each of its runners has a record
// or at least a directory, whatever it was doing when it died.
func (c *Cluster) recover(ctx context.Context) error {
	var left []*entry
	known := map[runtime.RunnerID]bool{}
	err := c.config.Store.Runners(ctx, func(r runtime.Runner, text []byte) error {
		e, err := c.recorded(r, text)
		if err == nil {
			left = append(left, e)
			known[e.id] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(c.runnersDir())
	if err != nil {
		return err
	}
	for _, d := range entries {
		if id := runtime.RunnerID(d.Name()); helper.ValidID(d.Name()) && !known[id] {
			e := newEntry(runtime.Runner{ID: id, State: runtime.RunnerStarting}, 0)
			e.private = private{Slot: -1, Group: sandbox.Group(c.config.CgroupParent, d.Name())}
			left = append(left, e)
		}
	}
	if err := c.clean(ctx, left); err != nil {
		return err
	}
	held, err := c.ranges.Held(c.runnersDir())
	if err != nil {
		return err
	}
	for n, holder := range held {
		if err := c.ranges.Release(n, holder); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) recorded(r runtime.Runner, text []byte) (*entry, error) {
	if !helper.ValidID(string(r.ID)) {
		return nil, fmt.Errorf("stored runner %q has an unknown id", r.ID)
	}
	e := newEntry(r, 0)
	if err := json.Unmarshal(text, &e.private); err != nil {
		return nil, fmt.Errorf("stored runner %s: %w", r.ID, err)
	}
	return e, nil
}

// clean removes runners of the last server in parallel. Those that were
// claimed stay, GONE; the others are forgotten.
func (c *Cluster) clean(ctx context.Context, left []*entry) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cap(c.removals))
	for _, e := range left {
		close(e.recorded)
		g.Go(func() error {
			if err := c.launcher.Remove(ctx, string(e.id), e.private.Group); err != nil {
				return err
			}
			if err := c.release(e.id, e.private); err != nil {
				return err
			}
			if !e.runner.Claim.Held() {
				return c.forget(ctx, e)
			}
			r := stoppedOutside(e.runner)
			if err := c.put(ctx, e, r); err != nil {
				return err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			e.runner = r
			c.entries[e.id] = e
			return nil
		})
	}
	return g.Wait()
}
