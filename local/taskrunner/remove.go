package taskrunner

import (
	"context"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// How often a removal that fails is tried, and the pauses between.
const (
	removeTries = 5
	firstPause  = 5 * time.Second
	lastPause   = 2 * time.Minute
)

// finish removes what there is of a task that is to end or has ended, and lets
// it be DEAD. It gives up when shutdown ends: the next server goes on.
func (t *Task) finish(shutdown context.Context) {
	pauses := backoff.Backoff{First: firstPause, Last: lastPause}
	for try := 1; ; try++ {
		select {
		case <-t.again: // of a Stop that this try is for
		default:
		}
		err := t.remove(context.WithoutCancel(shutdown))
		if err == nil {
			break
		}
		t.removalFailed(try, err)
		var pause <-chan time.Time // none after the last try: until somebody asks
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

// remove ends what runs, and removes it.
func (t *Task) remove(ctx context.Context) error {
	if t.handle != nil {
		t.end(ctx)
	}
	return t.destroy(ctx)
}

// end asks the task's first process to end, and waits a while. Failing is
// fine: what doesn't end is forced to.
func (t *Task) end(ctx context.Context) {
	if t.handle.Signal(t.config.Kill.Signal) != nil {
		return
	}
	if !t.state.Failed { // else it had ended: what was signalled is only not reaped yet
		t.config.Counts.Kills.Add(1)
	}
	ctx, cancel := context.WithTimeout(ctx, t.config.Kill.Timeout)
	defer cancel()
	if t.handle.Wait(ctx) != nil {
		t.config.Counts.ForcedKills.Add(1)
		t.tell(runtime.TaskForced, "", fmt.Errorf("signal %s didn't end it within %s", t.config.Kill.Signal, t.config.Kill.Timeout))
	}
}

// destroy removes what a start made, if there is anything.
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

func (t *Task) removalFailed(try int, err error) {
	t.tell(runtime.TaskRemovalFailed, "", fmt.Errorf("for the %d. time: %w", try, err))
	t.config.Counts.RemovalFailures.Add(1)
	if try == removeTries {
		t.config.Counts.Leaks.Add(1)
	}
	if try >= removeTries {
		t.state.Leak = fmt.Sprintf("it could not be removed in %d tries: %v", try, err)
		if err := t.save(); err != nil {
			t.note("that it leaked could not be stored: %v", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = err
	close(t.tried)
	t.tried = make(chan struct{})
}

// conclude runs the stop hooks, and lets the task be DEAD.
func (t *Task) conclude() {
	values := t.state.Values()
	failed := t.each("stop", func(ctx context.Context, h Hook) error {
		if s, ok := h.(Stopper); ok {
			return s.Stop(ctx, StopRequest{values})
		}
		return nil
	})
	t.state.Leak = ""
	if failed != nil {
		t.config.Counts.Leaks.Add(1)
		t.state.Leak = failed.Error()
	}
	end := t.stopped()
	if t.state.End != nil {
		end = t.state.End
	}
	t.tell(runtime.TaskEnded, "", nil)
	_ = t.move(Dead, end) // it is dead, stored or not; an event says so
	close(t.ended)
}
