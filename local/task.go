package local

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// restarts bounds the retries of a start that fails. An error that retrying can't fix, such as a
// limit that the kernel refuses, isn't retried; the pool waits between runners that couldn't start.
var restarts = taskrunner.Policy{Attempts: 2, Interval: 5 * time.Minute, Delay: 300 * time.Millisecond, Jitter: 0.5}

// cleanWithin bounds how long a caller waits for a sandbox's removal.
const cleanWithin = 15 * time.Second

// kill sends SIGKILL first: it ends the first process, and with it the whole pid namespace. Nothing
// in a runner that is being removed is worth waiting for, and its programs get no say. Its cgroup
// kills what survives that.
var kill = taskrunner.Kill{Signal: unix.SIGKILL, Timeout: time.Second, Within: cleanWithin}

// newTask returns the task of an entry, in a state.
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

// A keeper stores a task's state in the runner's record, and shows it in the entry.
type keeper struct {
	c *Cluster
	e *entry
}

// Save implements taskrunner.Keeper. For a dead runner that is to be forgotten it deletes the
// record.
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
		// A state is shown only after it was stored. Only the end of a runner is shown in any case.
		e.runner.Advance(r.State)
		e.runner.GoneReason, e.runner.Message = r.GoneReason, r.Message
		return nil
	})
	c.reportLeak(e, state.Leak)
	if state.End != nil && (state.End.Reason == runtime.GoneStartFailed || state.End.Reason == runtime.GoneUnknown) {
		c.config.Logger.Warn("a runner couldn't be started or watched, and is removed", zap.String("runner", string(e.id)), zap.Any("events", state.Events))
	}
	switch {
	case err == nil && state.Phase == taskrunner.Dead:
		c.freed(e)
	case err == nil:
		if state.Phase == taskrunner.Running {
			e.place.Running()
		}
		c.changes.Send(e.environment)
	case state.Phase == taskrunner.Dead: // it has ended, even if that wasn't stored
		c.config.Logger.Warn("a runner has ended, but its record couldn't be updated", zap.String("runner", string(e.id)), zap.Error(err))
		c.mu.Lock()
		e.runner = shown(e.runner, state)
		c.mu.Unlock()
		c.freed(e)
	}
	return err
}

// reportLeak reports in Status what couldn't be removed of a runner, and resolves that problem when
// leak is "".
func (c *Cluster) reportLeak(e *entry, leak string) {
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
	k.c.config.Logger.Debug("runner event", zap.String("runner", string(k.e.id)),
		zap.String("kind", string(event.Kind)), zap.String("detail", event.Detail), zap.String("message", event.Message))
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	k.e.record(event)
}

// shown returns r with the state, reason and message that follow from its task's state.
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

// freed reports to the scheduler that a runner's processes have ended, so its room is free.
func (c *Cluster) freed(e *entry) {
	c.mu.Lock()
	intended, message := e.removing || e.runner.GoneReason == runtime.GoneDrained, e.runner.Message
	c.mu.Unlock()
	e.place.Free(intended, message)
	c.changes.Send(e.environment)
}
