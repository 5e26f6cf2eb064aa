package local

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
