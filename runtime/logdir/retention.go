package logdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
)

const (
	collectEvery = time.Second
	collectBatch = 100     // executions deleted together
	collectMost  = 10      // batches per tick
	collectAhead = 1 << 20 // additional bytes of room per request, so that not every write has to request some
)

type roomRequest struct {
	bytes int64
	done  chan struct{} // closed when there is, or when nothing is left to remove
}

// Collect applies the retention to finished executions, oldest first, until ctx ends, and shrinks the
// database. The work of
// each tick and of each request is bounded. Call it once, after PutBack and Count.
func (d *Dir) Collect(ctx context.Context) {
	d.sweepFailed(ctx, d.removeLogs(ctx))
	for tick := time.Tick(collectEvery); ; {
		select {
		case <-ctx.Done():
			return
		case r := <-d.room:
			d.sweepFailed(ctx, d.sweep(ctx, r.bytes))
			close(r.done)
		case <-tick:
			d.sweepFailed(ctx, errors.Join(d.sweep(ctx, 0), d.boundOrphans(), d.options.Store.Shrink(ctx)))
		}
	}
}

// MakeRoom makes room for n bytes of output by removing finished executions, as far as possible.
func (d *Dir) MakeRoom(ctx context.Context, n int64) {
	n += d.quota.Reserve()
	if d.quota.Over(n) <= 0 {
		return
	}
	r := roomRequest{bytes: n + collectAhead, done: make(chan struct{})}
	select {
	case d.room <- r:
	case <-ctx.Done():
		return
	}
	<-r.done // takes a bounded time
}

// sweep removes executions that are too old, or that occupy the room for n more bytes. It removes
// nothing while the output of many removed ones can't be deleted.
func (d *Dir) sweep(ctx context.Context, n int64) error {
	err := d.removeLogs(ctx)
	if len(d.unremoved) >= collectBatch || d.options.Keep == 0 && d.quota == nil {
		return err
	}
	for range collectMost {
		oldest, err := d.options.Store.Oldest(ctx, collectBatch)
		if err != nil {
			return err
		}
		var old []store.Finished
		over := d.quota.Over(n)
		for _, f := range oldest {
			if over <= 0 && (d.options.Keep == 0 || d.options.Clock.Now().Sub(f.At) < d.options.Keep) {
				break
			}
			over -= f.Bytes
			old = append(old, f)
		}
		// A batch that isn't full shows that nothing more has to be removed.
		if err := d.forget(ctx, old); err != nil || len(old) < collectBatch {
			return err
		}
	}
	return nil
}

// sweepFailed reports the result of a sweep if it changed.
func (d *Dir) sweepFailed(ctx context.Context, err error) {
	switch {
	case err != nil && ctx.Err() == nil:
		d.failed = true
		d.options.Failing(err)
	case err == nil && d.failed:
		d.failed = false
		d.options.Failing(nil)
	}
}

// forget deletes executions and then their output. A reader that still has one open gets the rest
// as lost. If the server is killed in between, the next start removes the output.
func (d *Dir) forget(ctx context.Context, old []store.Finished) error {
	ids := make([]runtime.ExecutionID, len(old))
	for i, f := range old {
		ids[i] = f.ID
	}
	if err := d.options.Store.DeleteExecutions(ctx, ids, d.options.Clock.Now().Add(store.SpentKeyLife)); err != nil {
		return err
	}
	d.counts.collected.Add(int64(len(old)))
	for _, f := range old {
		d.unremoved[f.ID] = f.Bytes
	}
	return d.removeLogs(ctx)
}

// listRemovals reads, once, which output earlier servers still had to remove.
func (d *Dir) listRemovals(ctx context.Context) error {
	if d.listed {
		return nil
	}
	ids, err := d.options.Store.Removals(ctx)
	if err != nil {
		return err
	}
	d.listed = true
	for _, id := range ids {
		if _, ours := d.unremoved[id]; !ours {
			d.unremoved[id] = 0 // the quota counts only executions in the store
		}
	}
	return nil
}

func (d *Dir) remove(id runtime.ExecutionID) error {
	if d.options.Store.Shared() {
		return nil // Store.MarkOutputRemoved deletes it
	}
	return os.Remove(d.Path(id))
}

// removeLogs removes the output of deleted executions, including those of earlier servers. Output
// that can't be removed stays in the quota. The next call retries, and so does the next start.
func (d *Dir) removeLogs(ctx context.Context) error {
	unlisted := d.listRemovals(ctx)
	var removed []runtime.ExecutionID
	var failed error
	for id, bytes := range d.unremoved {
		if err := d.remove(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
			continue
		}
		d.quota.Add(-bytes)
		// If MarkOutputRemoved fails, the next call must not reduce the quota by these bytes twice.
		d.unremoved[id] = 0
		removed = append(removed, id)
	}
	if err := d.options.Store.MarkOutputRemoved(ctx, removed); err != nil {
		return errors.Join(unlisted, failed, err)
	}
	for _, id := range removed {
		delete(d.unremoved, id)
	}
	if failed != nil {
		return fmt.Errorf("the output of %d deleted executions could not be removed and still takes room; one error: %w", len(d.unremoved), errors.Join(failed, unlisted))
	}
	return unlisted
}
