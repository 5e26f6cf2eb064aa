package local

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// A start that fails is tried twice more. What fails for good, such as a
// sandbox whose limits don't take, isn't; the pool waits between runners that
// could not be started.
var restarts = taskrunner.Policy{Attempts: 2, Interval: 5 * time.Minute, Delay: 300 * time.Millisecond, Jitter: 0.5}

// cleanWithin bounds how long a sandbox's removal is waited for.
const cleanWithin = 15 * time.Second

// The first process is killed at once, and all of its pid namespace with it:
// nothing in a runner that is removed is worth waiting for, and what runs
// there is not to be asked. What outlives that is forced by its cgroup.
var kill = taskrunner.Kill{Signal: unix.SIGKILL, Timeout: time.Second, Within: cleanWithin}

func (c *Cluster) newTask(e *entry, state taskrunner.State) *taskrunner.Task {
	return taskrunner.New(taskrunner.Config{
		Driver: e.driver,
		Hooks:  e.driver.Hooks(),
		Policy: restarts,
		Kill:   kill,
		Keeper: &keeper{c, e},
		Counts: c.counts,
		Turn:   e.place.Enter,
	}, state)
}

// A keeper keeps a task's state in the runner's record, and shows it in the
// runner.
type keeper struct {
	c *Cluster
	e *entry
}

// Save implements taskrunner.Keeper. A runner that is dead and to be forgotten
// is kept as no record.
func (k *keeper) Save(ctx context.Context, state taskrunner.State) error {
	c, e := k.c, k.e
	err := e.turn.Do(ctx, func() error {
		c.mu.Lock()
		r, forget := shown(e.runner, state), e.forget
		c.mu.Unlock()
		if forget && state.Phase == taskrunner.Dead {
			return c.delete(ctx, e)
		}
		if err := c.put(ctx, e, r, state); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		e.runner.Advance(r.State)
		e.runner.GoneReason, e.runner.Message = r.GoneReason, r.Message
		return nil
	})
	c.tellLeak(e, state.Leak)
	if state.End != nil && (state.End.Reason == runtime.GoneStartFailed || state.End.Reason == runtime.GoneUnknown) {
		c.config.Logger.Warn("a runner could not be started, or watched", zap.String("runner", string(e.id)), zap.Any("events", state.Events))
	}
	switch {
	case err == nil && state.Phase == taskrunner.Dead:
		c.freed(e)
	case err == nil:
		if state.Phase == taskrunner.Running {
			e.place.Running()
		}
		c.changes.Send(e.environment)
	case state.Phase == taskrunner.Dead: // it has ended, stored or not
		c.config.Logger.Warn("a runner's end wasn't stored", zap.String("runner", string(e.id)), zap.Error(err))
		c.mu.Lock()
		e.runner = shown(e.runner, state)
		c.mu.Unlock()
		c.freed(e)
	}
	return err
}

// tellLeak has Status tell what could not be removed, while that is so.
func (c *Cluster) tellLeak(e *entry, leak string) {
	subject := "runner " + string(e.id)
	c.mu.Lock()
	was := c.leaks[e.id]
	if leak != "" {
		c.leaks[e.id] = true
	} else {
		delete(c.leaks, e.id)
	}
	c.mu.Unlock()
	if was && leak == "" {
		c.problems.Resolve(subject)
	}
	if leak != "" {
		c.problems.Report(subject, leak)
	}
}

// Note implements taskrunner.Keeper.
func (k *keeper) Note(event taskrunner.Event) {
	k.c.config.Logger.Debug("something happened to a runner", zap.String("runner", string(k.e.id)),
		zap.String("kind", string(event.Kind)), zap.String("detail", event.Detail), zap.String("message", event.Message))
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	k.e.tell(event)
}

// shown returns r as it is with its task in a state.
func shown(r runtime.Runner, state taskrunner.State) runtime.Runner {
	to := map[taskrunner.Phase]runtime.RunnerState{
		taskrunner.Pending: runtime.RunnerStarting, taskrunner.Running: runtime.RunnerIdle,
		taskrunner.Stopping: runtime.RunnerStopping, taskrunner.Dead: runtime.RunnerGone,
	}[state.Phase]
	if r.State == runtime.RunnerGone {
		return r
	}
	r.Advance(to)
	r.Message = state.Waiting
	if state.Phase == taskrunner.Dead && state.End != nil {
		r.GoneReason, r.Message = state.End.Reason, state.End.Message
	}
	return r
}

// freed says that a runner takes no room any more: its processes are gone.
func (c *Cluster) freed(e *entry) {
	c.mu.Lock()
	meant, message := e.removing || e.runner.GoneReason == runtime.GoneDrained, e.runner.Message
	c.mu.Unlock()
	e.place.Free(meant, message)
	c.changes.Send(e.environment)
}
