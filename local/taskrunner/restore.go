package taskrunner

import (
	"context"
	"errors"

	"github.com/rockpool/rockpool/runtime"
)

// Restore finds a task again that ran when the last server died or stopped,
// so that Run goes on with it. After an error it isn't there, or isn't fit:
// what is left of it is for Discard.
func (t *Task) Restore(ctx context.Context) error {
	if t.state.Phase != Running || len(t.state.Handle) == 0 {
		return errors.New("it didn't run")
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
	t.tell(runtime.TaskRestored, "", nil)
	return nil
}

// Discard removes what there is of a task that isn't Run, and lets it be DEAD.
// After an error, Stop and Run try again.
func (t *Task) Discard(ctx context.Context, end End) error {
	t.dirty = true // whatever was recorded
	if err := t.destroy(ctx); err != nil {
		return err
	}
	if t.state.End == nil {
		t.state.End = &end
		t.tell(runtime.TaskGone, end.Message, nil)
	}
	t.conclude()
	return nil
}
