package taskrunner

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// Bounds of a failing removal: the number of tries, and the pauses between them.
const (
	removeTries = 5
	firstPause  = 5 * time.Second
	lastPause   = 2 * time.Minute
)

// finish removes everything of a task that must end or has ended, and makes it DEAD. It gives up
// when shutdown ends: the next server continues.
func (t *Task) finish(shutdown context.Context) {
	pauses := backoff.Backoff{First: firstPause, Last: lastPause}
	for try := 1; ; try++ {
		select {
		case <-t.again: // a Stop before this try is served by it
		default:
		}
		err := t.remove(context.WithoutCancel(shutdown))
		if err == nil {
			break
		}
		t.removalFailed(try, err)
		var pause <-chan time.Time // none after the last try: then only Stop retries
		if try < removeTries {
			pause = time.After(pauses.Next())
		}
		select {
		case <-t.again:
		case <-pause:
		case <-shutdown.Done():
			return
		}
	}
	t.conclude()
}

// remove ends the task's process, removes what its start made, then runs the stop hooks.
func (t *Task) remove(ctx context.Context) error {
	if t.handle != nil {
		t.end(ctx)
	}
	if err := t.destroy(ctx); err != nil {
		return err
	}
	values := t.state.Values()
	return t.each("stop", func(ctx context.Context, h Hook) error {
		if s, ok := h.(Stopper); ok {
			return s.Stop(ctx, StopRequest{values})
		}
		return nil
	})
}

// end signals the task's first process, and waits a while. Its failure is no error: Destroy kills
// what doesn't end.
func (t *Task) end(ctx context.Context) {
	if t.handle.Signal(t.config.Kill.Signal) != nil {
		return
	}
	if !t.state.Failed { // a failed task has ended already and only isn't reaped yet
		t.config.Counts.Kills.Add(1)
	}
	ctx, cancel := context.WithTimeout(ctx, t.config.Kill.Timeout)
	defer cancel()
	if t.handle.Wait(ctx) != nil {
		t.config.Counts.ForcedKills.Add(1)
		t.record(runtime.TaskForced, "", fmt.Errorf("signal %s didn't end it within %s, so it was killed", t.config.Kill.Signal, t.config.Kill.Timeout))
	}
}

// destroy releases the handle, and removes what a start made, if anything.
func (t *Task) destroy(ctx context.Context) error {
	t.Close()
	if !t.dirty {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.config.Kill.Within)
	defer cancel()
	if err := t.config.Driver.Destroy(ctx); err != nil {
		return err
	}
	t.dirty = false
	return nil
}

// removalFailed records a failed removal, and wakes Wait. From the last try on, the task has
// leaked.
func (t *Task) removalFailed(try int, err error) {
	t.record(runtime.TaskRemovalFailed, "", fmt.Errorf("try %d: %w", try, err))
	t.config.Counts.RemovalFailures.Add(1)
	if try == removeTries {
		t.config.Counts.Leaks.Add(1)
	}
	if try >= removeTries {
		t.state.Leak = fmt.Sprintf("it couldn't be removed in %d tries: %v", try, err)
		if err := t.save(); err != nil {
			t.note("store that it leaked: %v", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = err
	close(t.tried)
	t.tried = make(chan struct{})
}

// conclude makes the task DEAD.
func (t *Task) conclude() {
	t.state.Leak = ""
	// An end that the state has already takes precedence over that of Stop.
	end := t.stopped()
	if t.state.End != nil {
		end = t.state.End
	}
	t.record(runtime.TaskEnded, "", nil)
	_ = t.move(Dead, end) // it is dead even if that can't be stored; an event records the error
	close(t.ended)
}
