package local

import (
	"context"
	"fmt"

	"github.com/rockpool/rockpool/runtime"
)

// SetDraining drains the machine, or ends that; what is so already is success.
// While it drains, durably, nothing is placed and nobody new can claim: runners that
// are wished for keep their turns in the scheduler. Runners that nobody holds go, with
// DRAINED; the others end as they would. After an error it may be so or not, and
// calling it again makes it so.
func (c *Cluster) SetDraining(ctx context.Context, draining bool) error {
	return c.placer.SetDraining(ctx, draining)
}

// Draining reports whether the machine is being drained.
func (c *Cluster) Draining() bool { return !c.placer.Draining().IsZero() }

// drainingStatus returns how far it has come; nil: the machine isn't being drained.
// The caller holds mu.
func (c *Cluster) drainingStatus() *runtime.Draining {
	d := &runtime.Draining{Since: c.placer.Draining()}
	if d.Since.IsZero() {
		return nil
	}
	for _, e := range c.entries {
		switch {
		case e.runner.State == runtime.RunnerGone || !e.place.Allocated():
		case e.runner.Claim.Held():
			d.Claimed++
		default:
			d.Leaving++
		}
	}
	return d
}

// drainingRemark has health say so. It is meant, and no fault.
func drainingRemark(d runtime.Draining) string {
	left := "no runner is left"
	if d.Claimed+d.Leaving > 0 {
		left = fmt.Sprintf("%d claimed runners are left, and %d others that go", d.Claimed, d.Leaving)
	}
	return "draining: no runner starts until that is ended (rockpool drain --off); " + left
}

// Evaluations returns a page of the scheduler's evaluations, the youngest first,
// and how many the filter picks in all.
func (c *Cluster) Evaluations(_ context.Context, filter runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	page, total := c.placer.Evaluations(filter)
	return page, total, nil
}

// Allocations returns a page of the scheduler's allocations, the youngest first,
// and how many the filter picks in all. Those that a restart found have the
// runner's id, so they are the oldest.
func (c *Cluster) Allocations(_ context.Context, filter runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	page, total := c.placer.Allocations(filter)
	return page, total, nil
}
