package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// Bounds of a failing removal: the number of tries, and the pauses between them.
const (
	removeTries = 5
	firstPause  = 5 * time.Second
	lastPause   = 2 * time.Minute
)

// remove removes everything of a runner that must end or has ended, and makes it GONE. It gives up
// when shutdown ends: the next server continues.
func (r *Runner) remove(shutdown context.Context) {
	pauses := backoff.Backoff{First: firstPause, Last: lastPause}
	for try := 1; ; try++ {
		r.again.Take() // a Stop before this try is served by it
		err := r.tryRemoval(context.WithoutCancel(shutdown))
		if err == nil {
			break
		}
		r.removalFailed(try, err)
		var pause <-chan time.Time // none after the last try: then only Stop retries
		if try < removeTries {
			pause = time.After(pauses.Next())
		}
		select {
		case <-r.again:
		case <-pause:
		case <-shutdown.Done():
			return
		}
	}
	if r.status.Leak != "" {
		r.status.Leak, r.unsaved = "", true
	}
	// A stopped runner may have to be forgotten, even if its end is saved already.
	r.status.Removed, r.unsaved = true, r.unsaved || r.stopped() != nil
	r.record(runtime.TaskEnded, "", nil)
	_ = r.move(runtime.RunnerGone, r.stopped()) // it is gone even if that can't be stored
	r.report(nil, true)
}

// tryRemoval ends the first process, destroys the sandbox, and releases what prepare allocated.
func (r *Runner) tryRemoval(ctx context.Context) error {
	r.kill(ctx)
	if err := r.destroy(ctx); err != nil {
		return err
	}
	return r.steps.Release(r.status.Slot)
}

// kill signals the first process, if there is one, and waits a while. Its failure is no error: destroy kills what
// doesn't end.
func (r *Runner) kill(ctx context.Context) {
	if r.handle == nil || r.handle.Signal(unix.SIGKILL) != nil {
		return
	}
	if !r.exited { // else it only isn't reaped yet
		r.config.Counts.Kills.Add(1)
	}
	ctx, cancel := context.WithTimeout(ctx, killAfter)
	defer cancel()
	if r.handle.Wait(ctx) != nil {
		r.config.Counts.ForcedKills.Add(1)
		r.record(runtime.TaskForced, "", fmt.Errorf("SIGKILL didn't end it within %s, so its cgroup was killed", killAfter))
	}
}

// destroy releases the handle, and removes what an attempt made, if anything.
func (r *Runner) destroy(ctx context.Context) error {
	r.close()
	if !r.dirty {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, CleanWithin)
	defer cancel()
	if err := r.steps.Destroy(ctx); err != nil {
		return err
	}
	r.dirty = false
	return nil
}

// removalFailed records a failed removal, and wakes the waiters. After the last try, the runner
// counts as leaked.
func (r *Runner) removalFailed(try int, err error) {
	r.record(runtime.TaskRemovalFailed, "", fmt.Errorf("try %d: %w", try, err))
	r.config.Counts.RemovalFailures.Add(1)
	if try == removeTries {
		r.config.Counts.Leaks.Add(1)
	}
	if try >= removeTries {
		r.status.Leak, r.unsaved = fmt.Sprintf("it couldn't be removed in %d tries: %v", try, err), true
		_ = r.save() // the log has the error
	}
	r.report(err, false)
}

// Try makes the runner, waits for its agent, and removes it again, without a record. If the removal
// fails, the next server removes what is left. It is called instead of Run.
func (r *Runner) Try(ctx context.Context) error {
	var err error
	if r.status.Slot, err = r.steps.Prepare(ctx, nil); err == nil {
		if r.handle, _, err = r.steps.Create(ctx, *r.status.Slot); err == nil {
			answer, cancel := context.WithTimeout(ctx, answerWithin)
			err = r.Sandbox.Ping(answer)
			cancel()
			r.close()
		}
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), CleanWithin)
	defer cancel()
	if left := r.steps.Destroy(clean); left != nil {
		return errors.Join(err, left) // the next server finds the directory, which keeps the user ids reserved
	}
	return errors.Join(err, r.steps.Release(r.status.Slot))
}
