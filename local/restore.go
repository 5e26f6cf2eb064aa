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

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
)

// restoreAtOnce is how many runners are checked concurrently: an agent that doesn't answer must not
// delay the others.
const restoreAtOnce = 64

// restore takes over the last server's live runners, and the registrations of those that it hadn't
// begun to make, and removes what is left of the others. Each runner has a record or at least a
// directory, at whatever point that server was killed.
func (c *Cluster) restore(ctx context.Context) error {
	left, err := c.recorded(ctx)
	if err != nil {
		return err
	}
	// The scheduler comes first: the runners report the states of their allocations to it.
	for _, e := range left {
		if e.info.Environment.ID == "" || e.info.State == runtime.RunnerGone {
			continue // its allocation is unknown, or it takes no room
		}
		had := runtime.AllocationPending
		switch {
		case e.untouched: // it had no allocation, or hadn't begun to use it
			had = ""
		case runtime.RunnerStarting.Before(e.info.State):
			had = runtime.AllocationRunning
		}
		e.placed = had != ""
		c.scheduler.Restore(e.job, had)
	}
	err = c.restoreRunners(ctx, left)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	known, roots := map[runtime.RunnerID]bool{}, []string{}
	c.mu.Lock()
	c.restored = true // all runners are known, so unused images can be deleted
	for id, e := range c.entries {
		known[id] = true
		if root, ok := e.runner.Sandbox.Root.Load().(string); ok {
			roots = append(roots, root)
		}
	}
	c.mu.Unlock()
	for what, err := range map[string]error{"ranges of user ids": c.host.SweepRanges(known), "root directories": c.host.SweepRoots(roots)} {
		if err != nil { // the next server tries again
			c.problems.Report(what, fmt.Sprintf("the last server's leftovers can't be removed; the next start tries again: %v", err))
		}
	}
	return nil
}

// restoreRunners restores up to restoreAtOnce runners concurrently, and waits for all. Untouched
// ones only get their entries.
func (c *Cluster) restoreRunners(ctx context.Context, left []*entry) error {
	until := time.Now().Add(restoreWithin)
	g, ctx := errgroup.WithContext(ctx) // an error cancels the others, which stay as they are
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

// recorded returns the entries of everything that the last server left: records, and directories
// without a record.
func (c *Cluster) recorded(ctx context.Context) ([]*entry, error) {
	directories, err := os.ReadDir(c.host.RunnersDir())
	if err != nil {
		return nil, err
	}
	begun := map[runtime.RunnerID]bool{} // the directory is the first thing that is made
	for _, d := range directories {
		begun[runtime.RunnerID(d.Name())] = true
	}
	var left []*entry
	err = c.config.Store.Runners(ctx, func(r runtime.Runner, text []byte, unreadable error) error {
		if !helper.ValidID(string(r.ID)) {
			c.problems.Report(fmt.Sprintf("runner %q", r.ID), "its record has an invalid id, so it was skipped")
			return nil
		}
		var record runner.Record
		if unreadable == nil {
			unreadable = json.Unmarshal(text, &record)
		}
		if unreadable == nil { // the scheduler would refuse it
			unreadable = jobOf(r, runtime.PriorityRefill).Check()
		}
		if unreadable != nil {
			c.problems.Report("runner "+string(r.ID), fmt.Sprintf("its record can't be read, so it was removed: %v", unreadable))
			r, record = runtime.Runner{ID: r.ID, State: runtime.RunnerStarting}, runner.Record{}
		}
		if !helper.ValidParent(path.Dir(record.Group)) || path.Base(record.Group) != string(r.ID) {
			record.Group = ""
		}
		e := c.newEntry(r, runtime.PriorityRefill, record)
		e.untouched = unreadable == nil && r.State == runtime.RunnerStarting && !begun[r.ID]
		delete(begun, r.ID)
		left = append(left, e)
		return nil
	})
	for id := range begun {
		if helper.ValidID(string(id)) {
			left = append(left, c.newEntry(runtime.Runner{ID: id, State: runtime.RunnerStarting}, runtime.PriorityRefill, runner.Record{}))
		}
	}
	return left, err
}

// restoreRunner takes over one live runner, however long others take. It removes what is left of a
// dead one, and waits for that until `until`. After that, the removal continues in the background. A dead runner
// that was claimed stays listed as GONE until it is removed; the others are forgotten. It returns an
// error if it can't find out whether the runner lives: then the runner is left as it is, and the
// server must not start.
func (c *Cluster) restoreRunner(ctx context.Context, e *entry, until time.Time) error {
	err := e.runner.Restore(ctx)
	dead := err != nil
	switch {
	case !dead:
	case ctx.Err() != nil:
		return nil // whether it lives is unknown: the next server finds out
	case errors.Is(err, runner.ErrUnread): // its processes, user ids and record must be kept together
		return fmt.Errorf("can't tell whether runner %s is alive, so it was left as it is; fix the cause and start the server again: %w", e.id, err)
	// One that wasn't ready yet, or was being removed, needs no log line.
	case runtime.RunnerStarting.Before(e.info.State) && e.info.State.Before(runtime.RunnerStopping):
		c.config.Logger.Info("a runner of the last server has ended", zap.String("runner", string(e.id)), zap.String("was", string(e.info.State)), zap.Error(err))
	}
	c.mu.Lock()
	e.lost, e.removing = dead, dead
	c.entries[e.id] = e
	c.mu.Unlock()
	if !dead {
		c.lead(e)
		return nil
	}
	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err = c.endStopped(within, e, lossOf(err))
	if err != nil && ctx.Err() == nil { // after its last try the runner itself reports what is left
		c.config.Logger.Warn("the last server's leftovers of a runner aren't removed yet", zap.String("runner", string(e.id)), zap.Error(err))
	}
	return nil
}

// lossOf returns for clients why a runner couldn't be taken over.
func lossOf(err error) string {
	var refused *agent.Error
	if errors.As(err, &refused) && refused.Code == agent.ErrIncompatible {
		return "its agent has another protocol than this server"
	}
	return "it ended while no server ran, or its agent didn't answer the next one"
}
