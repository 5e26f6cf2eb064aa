package local

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

// Status implements runtime.Cluster. Runners without an allocation use no capacity; runners that
// are being removed use theirs until their processes have ended.
func (c *Cluster) Status(context.Context) (runtime.ClusterStatus, error) {
	node := c.scheduler.Node()
	status := runtime.ClusterStatus{
		Kind: "local",
		Capacity: runtime.Capacity{
			CPUs: node.Machine.CPUMHz / c.host.Machine.CoreMHz, CPUMHz: node.Machine.CPUMHz, MemoryMiB: int64(node.Machine.MemoryMiB),
			CPUMHzPromisable: node.Capacity.CPUMHz, MemoryMiBPromisable: int64(node.Capacity.MemoryMiB),
		},
		CoreMHz:          c.host.Machine.CoreMHz,
		LargestRunner:    &node.Capacity,
		HostInterpreters: c.host.Machine.Programs(runtime.Interpreters()),
	}
	status.Capacity.Take(node.Used)
	remarks := append(slices.Clone(c.tiers), c.host.Limitations()...)
	if why := c.host.Machine.Undivided; why != nil && len(c.host.Machine.Lacks) == 0 {
		remarks = append(remarks, fmt.Sprintf("commands share their runner's cgroups because %v: if several run concurrently, an exceeded memory or process limit can look like a failure", why))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	status.Problems = c.visible()
	if d := c.drainingStatus(); d != nil {
		status.Draining = d
		remarks = slices.Insert(remarks, 0, drainingRemark(*d))
	}
	status.Remark = strings.Join(remarks, "; ")
	return status, nil
}

// visible returns the problems that Status reports: those of the list, and the oldest one about the
// counters of a live runner. The caller holds mu.
func (c *Cluster) visible() []runtime.Problem {
	all := c.problems.All()
	var oldest *runtime.Problem
	for _, e := range c.entries {
		if p := e.runner.Sandbox.Counters.Problem(); p != nil && e.info.State != runtime.RunnerGone && (oldest == nil || p.Since.Before(oldest.Since)) {
			oldest = p
		}
	}
	if oldest != nil {
		all = append(all, *oldest)
	}
	return all
}

// Stats is what a Cluster has counted since New, and its current load.
type Stats struct {
	Scheduler scheduler.Stats
	Node      scheduler.Node
	Tasks     health.TaskStats
	Leaked    int // runners of which something couldn't be removed
	Problems  int // as in Status
}

// Stats returns the counters and the current load. It reads memory only.
func (c *Cluster) Stats() Stats {
	s := Stats{Scheduler: c.scheduler.Stats(), Node: c.scheduler.Node(), Tasks: c.counts.Read()}
	s.Tasks.Phases[health.PhasePlace] = c.waited.Read()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Leaked = len(c.leaks)
	s.Problems = len(c.visible())
	return s
}

// Evaluations is [scheduler.Scheduler.Evaluations].
func (c *Cluster) Evaluations(_ context.Context, filter runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	page, total := c.scheduler.Evaluations(filter)
	return page, total, nil
}

// Allocations is [scheduler.Scheduler.Allocations].
func (c *Cluster) Allocations(_ context.Context, filter runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	page, total := c.scheduler.Allocations(filter)
	return page, total, nil
}

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
