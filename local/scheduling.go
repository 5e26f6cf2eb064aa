package local

import (
	"context"
	"fmt"

	"github.com/rockpool/rockpool/runtime"
)

// SetDraining starts or ends draining the machine; if it is already so, that is success. The
// setting is stored, so it survives a restart. While the machine drains, nothing is placed and no
// idle runner can be claimed; registered runners keep their turns in the scheduler. Unclaimed
// runners are removed with DRAINED; claimed ones end as usual. After an error the setting may have
// changed or not: call it again.
func (c *Cluster) SetDraining(ctx context.Context, draining bool) error {
	return c.placer.SetDraining(ctx, draining)
}

// Draining reports whether the machine is draining.
func (c *Cluster) Draining() bool { return !c.placer.Draining().IsZero() }

// drainingStatus returns the progress of draining; nil: the machine isn't draining. The caller
// holds mu.
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

// drainingRemark returns the remark for the health status: draining is intended and no problem.
func drainingRemark(d runtime.Draining) string {
	left := "no runners are left"
	if d.Claimed+d.Leaving > 0 {
		left = fmt.Sprintf("%d claimed runners are left, and %d others are being removed", d.Claimed, d.Leaving)
	}
	return "draining: no runner starts until you run rockpool drain --off; " + left
}

// Evaluations returns a page of the scheduler's evaluations, newest first, and how many match the
// filter in all.
func (c *Cluster) Evaluations(_ context.Context, filter runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	page, total := c.placer.Evaluations(filter)
	return page, total, nil
}

// Allocations returns a page of the scheduler's allocations, newest first, and how many match the
// filter in all. An allocation restored after a restart has its runner's id, so it sorts as the
// oldest.
func (c *Cluster) Allocations(_ context.Context, filter runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	page, total := c.placer.Allocations(filter)
	return page, total, nil
}
