package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/local/driver"
	"github.com/rockpool/rockpool/local/placing"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// restoreAtOnce is how many runners are looked at together: one whose agent
// doesn't answer must not hold up the others.
const restoreAtOnce = 64

// restore takes over the runners of the last server whose sandboxes live, as
// they were, and the wishes for those that it had not begun to make, and removes
// what is left of the others. Each has a record or at least a directory,
// whatever that server was doing when it ended.
func (c *Cluster) restore(ctx context.Context) error {
	left, err := c.recorded(ctx)
	if err != nil {
		return err
	}
	if err := c.restorePlaces(left); err != nil {
		return err
	}
	err = c.restoreRunners(ctx, left)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	c.placer.Restored()
	c.mu.Lock()
	c.restored = true
	c.mu.Unlock()
	for what, err := range map[string]error{"ranges of user ids": c.host.SweepRanges(c.knows), "root directories": c.host.SweepRoots(c.roots())} {
		if err != nil { // the next server tries again
			c.problems.Report(what, fmt.Sprintf("what the last server left of them isn't removed: %v", err))
		}
	}
	return nil
}

// restorePlaces gives the runners that the last server left the places that they had,
// as far as their records tell.
func (c *Cluster) restorePlaces(left []*entry) error {
	var places []*placing.Place
	for _, e := range left {
		if e.runner.Environment.ID == "" || e.runner.State == runtime.RunnerGone {
			continue // nobody knows what it was promised, or it takes nothing any more
		}
		if !e.untouched { // else it had no place, or hadn't begun to use it
			e.place.Found(runtime.RunnerStarting.Before(e.runner.State))
		}
		places = append(places, e.place)
	}
	return c.placer.Restore(places)
}

func (c *Cluster) restoreRunners(ctx context.Context, left []*entry) error {
	until := time.Now().Add(restoreWithin)
	g, ctx := errgroup.WithContext(ctx) // after an error the others are left as they are, too
	g.SetLimit(restoreAtOnce)
	for _, e := range left {
		close(e.recorded)
		if !e.untouched {
			g.Go(func() error { return c.restoreRunner(ctx, e, until) })
			continue
		}
		c.mu.Lock()
		c.entries[e.id] = e
		c.mu.Unlock()
	}
	return g.Wait()
}

// recorded returns the entries of all that the last server left.
func (c *Cluster) recorded(ctx context.Context) ([]*entry, error) {
	var left []*entry
	known := map[string]bool{}
	err := c.config.Store.Runners(ctx, func(r runtime.Runner, text []byte, unreadable error) error {
		known[string(r.ID)] = true
		if !helper.ValidID(string(r.ID)) {
			c.problems.Report(fmt.Sprintf("runner %q", r.ID), "its record has an unknown id: it was skipped")
			return nil
		}
		var p private
		if unreadable == nil {
			unreadable = json.Unmarshal(text, &p)
		}
		if unreadable == nil { // one that makes no sense would stop the others
			unreadable = placing.Check(r)
		}
		if unreadable != nil {
			c.problems.Report("runner "+string(r.ID), fmt.Sprintf("its record can't be read, so it was removed: %v", unreadable))
			r, p = runtime.Runner{ID: r.ID, State: runtime.RunnerStarting}, private{}
		}
		if !helper.ValidParent(path.Dir(p.Group)) || path.Base(p.Group) != string(r.ID) {
			p.Group = ""
		}
		left = append(left, c.newEntry(r, runtime.PriorityRefill, p))
		return nil
	})
	if err != nil {
		return nil, err
	}
	directories, err := os.ReadDir(c.host.RunnersDir())
	if err != nil {
		return nil, err
	}
	begun := map[string]bool{}
	for _, d := range directories {
		begun[d.Name()] = true
		if helper.ValidID(d.Name()) && !known[d.Name()] {
			r := runtime.Runner{ID: runtime.RunnerID(d.Name()), State: runtime.RunnerStarting}
			left = append(left, c.newEntry(r, runtime.PriorityRefill, private{}))
		}
	}
	for _, e := range left {
		// The directory is what is made first.
		e.untouched = e.runner.State == runtime.RunnerStarting && e.runner.Environment.ID != "" && !begun[string(e.id)]
	}
	return left, nil
}

// notThere is the end of a runner that a client held, and that didn't outlive
// the server.
var notThere = taskrunner.End{Reason: runtime.GoneStoppedOutside, Message: "it ended while no server ran, or its agent didn't answer the next one"}

// restoreRunner takes over one runner, however long others took, or removes what
// is left of it until a time. One that was claimed stays listed, GONE, until it
// is removed; the others are forgotten. An error: nobody knows whether it lives, so
// it was left as it is, and the server can't start without it.
func (c *Cluster) restoreRunner(ctx context.Context, e *entry, until time.Time) error {
	log := c.config.Logger.With(zap.String("runner", string(e.id)))
	err := e.task.Restore(ctx)
	if err == nil {
		c.mu.Lock()
		c.entries[e.id] = e
		c.mu.Unlock()
		e.place.HandOver()
		return nil
	}
	if ctx.Err() != nil {
		return nil // nobody knows whether it lives: the next server finds out
	}
	if errors.Is(err, driver.ErrUnread) { // its processes, user ids and record must stay together
		return fmt.Errorf("runner %s was left as it is; mend the cause and start the server again: %w", e.id, err)
	}
	e.place.Lose()
	e.removing, e.forget = true, !e.runner.Claim.Held()
	if runtime.RunnerStarting.Before(e.runner.State) && e.runner.State.Before(runtime.RunnerStopping) { // the others were being made, or removed
		log.Info("a runner of the last server isn't there any more", zap.String("was", string(e.runner.State)), zap.Error(err))
	}
	c.mu.Lock()
	c.entries[e.id] = e
	c.mu.Unlock()
	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if err := e.task.Discard(within, notThere); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		c.tellLeak(e, fmt.Sprintf("what the last server left of it isn't removed yet: %v", err))
		e.task.Stop(notThere)
		e.place.HandOver()
		return nil
	}
	c.freed(e) // also where it was known to be dead
	e.place.Ended()
	if e.forget {
		if err := c.awaitRemoval(within, e); err != nil { // nothing else is left of it; its pool tries again
			log.Warn("the record of a runner that isn't there any more wasn't deleted", zap.Error(err))
		}
	}
	return nil
}

func (c *Cluster) knows(id runtime.RunnerID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[id] != nil
}

// roots returns the names of the root directories that runners were made around.
func (c *Cluster) roots() (used []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		used = append(used, e.driver.Root())
	}
	return used
}
