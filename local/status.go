package local

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/tasks"
)

// Status implements runtime.Cluster. Runners that wait for a place take nothing;
// those that are being removed count until their processes are gone.
func (c *Cluster) Status(context.Context) (runtime.ClusterStatus, error) {
	node := c.placer.Node()
	status := runtime.ClusterStatus{
		Kind: "local",
		Capacity: runtime.Capacity{
			CPUMHz: node.Machine.CPUMHz, MemoryMiB: int64(node.Machine.MemoryMiB),
			CPUMHzPromisable: node.Capacity.CPUMHz, MemoryMiBPromisable: int64(node.Capacity.MemoryMiB),
		},
		CoreMHz:          c.host.Machine.CoreMHz,
		LargestRunner:    &node.Capacity,
		HostInterpreters: c.host.Machine.Programs(runtime.Interpreters()),
	}
	status.Capacity.Take(node.Used)
	remarks := slices.Clone(c.tiers)
	if lost := c.host.Lost(); lost != "" {
		remarks = append(remarks, lost)
	}
	if why := c.host.Machine.Undivided; why != nil && len(c.host.Machine.Lacks) == 0 {
		remarks = append(remarks, fmt.Sprintf("commands share their runner's control groups, since %v: where several run at once, a memory or process limit can't always be told from a failure", why))
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

// visible returns the problems that Status tells: what was reported, and the oldest
// of those about counters of runners that live. The caller holds mu.
func (c *Cluster) visible() []runtime.Problem {
	all := c.problems.All()
	var oldest *runtime.Problem
	for _, e := range c.entries {
		if p := e.driver.Counters.Problem(); p != nil && e.runner.State != runtime.RunnerGone && (oldest == nil || p.Since.Before(oldest.Since)) {
			oldest = p
		}
	}
	if oldest != nil {
		all = append(all, *oldest)
	}
	return all
}

// Stats count what a Cluster has done since it was made, and say what it has
// now.
type Stats struct {
	Scheduler scheduler.Stats
	Node      scheduler.Node
	Tasks     tasks.Stats
	Leaked    int // runners of which something could not be removed
	Problems  int // that Status tells
}

// Stats returns what was counted up to now. It asks nothing of the machine.
func (c *Cluster) Stats() Stats {
	s := Stats{Scheduler: c.placer.Scheduler.Stats(), Node: c.placer.Node(), Tasks: c.counts.Read()}
	s.Tasks.Phases[tasks.Place] = c.placer.Waited()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Leaked = len(c.leaks)
	s.Problems = len(c.visible())
	return s
}
