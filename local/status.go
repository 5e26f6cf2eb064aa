package local

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// Status implements runtime.Cluster. Runners that wait for a place take nothing;
// those that are being removed count until their processes are gone.
func (c *Cluster) Status(context.Context) (runtime.ClusterStatus, error) {
	node := c.scheduler.Snapshot().Node()
	status := runtime.ClusterStatus{Kind: "local", Capacity: runtime.Capacity{CPUMHz: node.Machine.CPUMHz, MemoryMiB: int64(node.Machine.MemoryMiB)}}
	status.Capacity.Take(node.Used)
	remarks := slices.Clone(c.tiers)
	if lost := c.Lost(); lost != "" {
		remarks = append(remarks, lost)
	}
	if why := c.machine.Undivided; why != nil && len(c.machine.Lacks) == 0 {
		remarks = append(remarks, fmt.Sprintf("commands share their runner's control groups, since %v: where several run at once, a memory or process limit can't always be told from a failure", why))
	}
	status.Remark = strings.Join(remarks, "; ")
	c.mu.Lock()
	defer c.mu.Unlock()
	status.Problems = c.visible()
	if d := c.drainingStatus(); d != nil {
		status.Draining = d
		status.Problems = slices.Insert(status.Problems, 0, drainingProblem(*d))
	}
	return status, nil
}

// report has Status tell a problem until it is resolved or the server ends, the
// latest of each subject, and logs it.
func (c *Cluster) report(subject, message string) {
	c.log.Error("a problem that stays visible in health", zap.String("subject", subject), zap.String("problem", message))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resolve(subject)
	c.problems = append(c.problems, runtime.Problem{Subject: subject, Message: message, Since: time.Now()})
}

// visible returns the problems that Status tells: what was reported, and the oldest
// of those about counters of runners that live. The caller holds mu.
func (c *Cluster) visible() []runtime.Problem {
	all := slices.Clone(c.problems)
	var oldest *runtime.Problem
	for _, e := range c.entries {
		if p := e.unread; p != nil && e.runner.State != runtime.RunnerGone && (oldest == nil || p.Since.Before(oldest.Since)) {
			oldest = p
		}
	}
	if oldest != nil {
		all = append(all, *oldest)
	}
	return all
}

// resolve forgets a problem. The caller holds mu.
func (c *Cluster) resolve(subject string) {
	c.problems = slices.DeleteFunc(c.problems, func(p runtime.Problem) bool { return p.Subject == subject })
}
