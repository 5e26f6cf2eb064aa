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
	collectBatch = 100     // executions that are deleted together
	collectMost  = 10      // batches at a tick
	collectAhead = 1 << 20 // bytes of room that are made for more than was asked for, so that not each write asks
)

// A roomRequest asks the collector for room for so many bytes.
type roomRequest struct {
	bytes int64
	done  chan struct{} // closed when there is, or when nothing is left to collect
}

// Collect keeps what is finished within its bounds, oldest first, until ctx
// ends. Each tick's work is bounded, and so is that for a request. Call it once, after
// PutBack and Count.
func (d *Dir) Collect(ctx context.Context) {
	d.sweepFailed(ctx, d.removeLogs(ctx))
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-d.room:
			d.sweepFailed(ctx, d.sweep(ctx, r.bytes))
			close(r.done)
		case <-tick.C:
			d.sweepFailed(ctx, errors.Join(d.sweep(ctx, 0), d.boundOrphans()))
		}
	}
}

// MakeRoom has room for n bytes of output made, where there isn't any: as far
// as finished executions can make it.
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
	<-r.done // soon: the work is bounded
}

// sweep collects what is too old, and what stands in the way of n bytes more. It
// collects nothing more while much of what it collected can't be removed.
func (d *Dir) sweep(ctx context.Context, n int64) error {
	err := d.removeLogs(ctx)
	if len(d.unremoved) >= collectBatch || d.keep == 0 && d.quota == nil {
		return err
	}
	for range collectMost {
		oldest, err := d.store.Oldest(ctx, collectBatch)
		if err != nil {
			return err
		}
		var old []store.Finished
		over := d.quota.Over(n)
		for _, f := range oldest {
			if over <= 0 && (d.keep == 0 || time.Since(f.At) < d.keep) {
				break
			}
			over -= f.Bytes
			old = append(old, f)
		}
		if err := d.forget(ctx, old); err != nil || len(old) < collectBatch {
			return err
		}
	}
	return nil
}

// sweepFailed reports how a sweep went.
func (d *Dir) sweepFailed(ctx context.Context, err error) {
	switch {
	case err != nil && ctx.Err() == nil:
		d.failed = true
		d.failing(err)
	case err == nil && d.failed:
		d.failed = false
		d.failing(nil)
	}
}

// forget deletes executions and then their output: a reader that still has one
// gets the rest as lost. If the server is killed first, the next start removes it.
func (d *Dir) forget(ctx context.Context, old []store.Finished) error {
	ids := make([]runtime.ExecutionID, len(old))
	for i, f := range old {
		ids[i] = f.ID
	}
	if err := d.store.DeleteExecutions(ctx, ids, time.Now().Add(store.SpentKeyLife)); err != nil {
		return err
	}
	d.counts.collected.Add(int64(len(old)))
	for _, f := range old {
		d.unremoved[f.ID] = f.Bytes
	}
	return d.removeLogs(ctx)
}

// listRemovals learns, once, which output an earlier server didn't come to remove.
func (d *Dir) listRemovals(ctx context.Context) error {
	if d.listed {
		return nil
	}
	ids, err := d.store.Removals(ctx)
	if err != nil {
		return err
	}
	d.listed = true
	for _, id := range ids {
		if _, ours := d.unremoved[id]; !ours {
			d.unremoved[id] = 0 // the quota counts only what the store knows
		}
	}
	return nil
}

// remove removes a log that is a file.
func (d *Dir) remove(id runtime.ExecutionID) error {
	if d.store.Shared() {
		return nil // see Removed
	}
	return os.Remove(d.Path(id))
}

// removeLogs removes the output of executions that were deleted, also by an earlier
// server. The quota counts what can't be removed. The next call tries it again, and
// so does the next start.
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
		d.unremoved[id] = 0
		removed = append(removed, id)
	}
	if err := d.store.Removed(ctx, removed); err != nil {
		return errors.Join(unlisted, failed, err)
	}
	for _, id := range removed {
		delete(d.unremoved, id)
	}
	if failed != nil {
		return fmt.Errorf("the output of %d can't be removed and still takes room; one of them: %w", len(d.unremoved), errors.Join(failed, unlisted))
	}
	return unlisted
}
