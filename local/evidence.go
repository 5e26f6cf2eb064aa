package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

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
	var last *runtime.Evidence
	if ok {
		last = e.evidence
	}
	starting := ok && e.runner.State == runtime.RunnerStarting
	c.mu.Unlock()
	switch {
	case !ok:
		return runtime.Evidence{}, gone(id)
	case starting:
		return runtime.Evidence{}, nil
	}
	now, err := c.count(e)
	if err != nil && !uncounted(err) {
		err = fmt.Errorf("the cgroup counters of runners are unreadable, so limits aren't reported as causes: %w", err)
	}
	c.counted(e, err)
	switch {
	case err == nil:
		c.outlived(ctx, e, now)
		return now, nil
	case !uncounted(err):
		return runtime.Evidence{}, runtime.Wrap(runtime.CodeInternal, err, "runner %s can't be observed; the server's log says why", id)
	case last == nil:
		return runtime.Evidence{}, gone(id)
	}
	return *last, nil
}

// counted notes whether e's counters could be read, for Status.
func (c *Cluster) counted(e *entry, err error) {
	c.mu.Lock()
	was := e.unread
	switch {
	case err == nil || uncounted(err):
		e.unread = nil
	case was == nil:
		e.unread = &runtime.Problem{Subject: "counters", Message: err.Error(), Since: time.Now()}
	}
	told := e.unread != nil && was == nil
	c.mu.Unlock()
	if told {
		c.log.Error("a runner's counters can't be read", zap.String("runner", string(e.id)), zap.Error(err))
	}
}

// errNeverMade says that a runner has no sandbox, and never had one.
var errNeverMade = errors.New("it was never made")

// uncounted reports whether an error of count says that nothing counts for the
// runner: it has no groups. Any other error says nothing about the runner.
func uncounted(err error) bool {
	for _, missing := range []error{errNeverMade, fs.ErrNotExist, fs.ErrClosed, unix.ENODEV} {
		if errors.Is(err, missing) {
			return true
		}
	}
	return false
}

// answerAfterKill is how long an agent may take to show that it outlived a kill for
// memory.
const answerAfterKill = 2 * time.Second

// outlived notes that a runner outlived what the kernel killed in it for memory.
// That may have been its agent, or the runner's own kernel, whose end takes its
// time: only the agent can tell that it wasn't.
func (c *Cluster) outlived(ctx context.Context, e *entry, now runtime.Evidence) {
	c.mu.Lock()
	killed := now.OOMKills > e.oomSeen
	c.mu.Unlock()
	if !killed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerAfterKill)
	defer cancel()
	if c.ping(ctx, e.id) != nil {
		return
	}
	c.mu.Lock()
	first := now.OOMKills > e.oomSeen
	e.oomSeen = max(e.oomSeen, now.OOMKills)
	c.mu.Unlock()
	if first {
		c.log.Info("the agent outlived what the kernel killed for memory", zap.String("runner", string(e.id)))
	}
}

// count reads e's counters, and keeps them. They never fall back: while groups
// are being removed, those of commands go before the runner's own.
func (c *Cluster) count(e *entry) (runtime.Evidence, error) {
	c.mu.Lock()
	counter, isolation := e.counter, e.runner.Environment.Isolation
	c.mu.Unlock()
	if counter == nil {
		return runtime.Evidence{}, errNeverMade
	}
	kills, hits, err := counter.Counts()
	if err != nil {
		return runtime.Evidence{}, err
	}
	now := runtime.Evidence{OOMKills: kills, ProcessLimitHits: hits, OwnKernel: isolation == runtime.IsolationGVisor}
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := e.evidence; last != nil {
		now.OOMKills, now.ProcessLimitHits = max(now.OOMKills, last.OOMKills), max(now.ProcessLimitHits, last.ProcessLimitHits)
	}
	e.evidence = &now
	return now, nil
}
