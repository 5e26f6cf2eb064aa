package taskrunner

import (
	"context"
	"errors"

	"github.com/rockpool/rockpool/runtime"
)

// Restore reattaches to a task that ran when the last server ended, so that Run can continue with
// it. After an error the task has ended or is unusable, or that is unknown (the driver's error says
// so): call Discard to remove what is left.
func (t *Task) Restore(ctx context.Context) error {
	if t.state.Phase != Running || len(t.state.Handle) == 0 {
		return errors.New("it wasn't running when the last server ended")
	}
	handle, err := t.config.Driver.Reattach(ctx, t.state.Handle)
	if err != nil {
		t.config.Counts.Lost.Add(1)
		return err
	}
	t.handle = handle
	if err := t.poststart(ctx, true); err != nil {
		t.Close()
		t.config.Counts.Lost.Add(1)
		return err
	}
	t.config.Counts.Restores.Add(1)
	t.record(runtime.TaskRestored, "", nil)
	return nil
}

// Discard removes everything of a task that isn't run, and makes it DEAD. After an error, Stop and
// Run retry.
func (t *Task) Discard(ctx context.Context, end End) error {
	t.dirty = true // the record may be older than what was made
	if err := t.remove(ctx); err != nil {
		return err
	}
	if t.state.End == nil {
		t.state.End = &end
		t.record(runtime.TaskGone, end.Message, nil)
	}
	t.conclude()
	return nil
}
