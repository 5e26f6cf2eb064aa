package local

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/evidence"
	"github.com/rockpool/rockpool/runtime"
)

// Evidence implements runtime.Cluster. The last counters stay available until the runner is
// removed.
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
		return runtime.Evidence{}, runtime.Wrap(runtime.CodeInternal, err, "the counters of runner %s can't be read; the server's log says why", id)
	}
	c.noteSurvivor(ctx, e, now)
	return now, nil
}

// answerAfterKill bounds how long an agent may take to answer after the kernel killed something in
// its runner for memory.
const answerAfterKill = 2 * time.Second

// noteSurvivor records that a runner survived an out-of-memory kill. The kernel may have killed the
// agent, or the runner's own kernel, whose end takes a while: only an answer of the agent proves
// that it lives.
func (c *Cluster) noteSurvivor(ctx context.Context, e *entry, now runtime.Evidence) {
	if !e.driver.Counters.Killed(now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerAfterKill)
	defer cancel()
	if e.driver.Ping(ctx) == nil && e.driver.Counters.Survived(now) {
		c.config.Logger.Info("the kernel killed a process for memory, and the runner's agent survived", zap.String("runner", string(e.id)))
	}
}
