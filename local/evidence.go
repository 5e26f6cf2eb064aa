package local

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/evidence"
	"github.com/rockpool/rockpool/runtime"
)

// Evidence implements runtime.Cluster. What was counted last stays known until
// the runner is removed.
func (c *Cluster) Evidence(ctx context.Context, id runtime.RunnerID) (runtime.Evidence, error) {
	if ctx.Err() != nil {
		return runtime.Evidence{}, context.Cause(ctx)
	}
	c.mu.Lock()
	e, ok := c.entries[id]
	starting := ok && e.runner.State == runtime.RunnerStarting
	c.mu.Unlock()
	switch {
	case !ok:
		return runtime.Evidence{}, gone(id)
	case starting:
		return runtime.Evidence{}, nil
	}
	now, err := e.driver.Counters.Latest()
	switch {
	case errors.Is(err, evidence.ErrNone):
		return runtime.Evidence{}, gone(id)
	case err != nil:
		return runtime.Evidence{}, runtime.Wrap(runtime.CodeInternal, err, "runner %s can't be observed; the server's log says why", id)
	}
	c.outlived(ctx, e, now)
	return now, nil
}

// answerAfterKill is how long an agent may take to show that it outlived a kill for
// memory.
const answerAfterKill = 2 * time.Second

// outlived notes that a runner outlived what the kernel killed in it for memory.
// That may have been its agent, or the runner's own kernel, whose end takes its
// time: only the agent's answer shows that it wasn't.
func (c *Cluster) outlived(ctx context.Context, e *entry, now runtime.Evidence) {
	if !e.driver.Counters.Killed(now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerAfterKill)
	defer cancel()
	if e.driver.Ping(ctx) == nil && e.driver.Counters.Outlived(now) {
		c.config.Logger.Info("the agent outlived what the kernel killed for memory", zap.String("runner", string(e.id)))
	}
}
