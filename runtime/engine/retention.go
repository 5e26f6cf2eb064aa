package engine

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

// collect keeps what is finished within its bounds, oldest first, until ctx
// ends. Each tick's work is bounded, and so is that for a request.
func (e *Engine) collect(ctx context.Context) {
	select {
	case <-e.restored:
	case <-ctx.Done():
		return
	}
	e.sweepFailed(ctx, e.removeLogs(ctx))
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-e.room:
			e.sweepFailed(ctx, e.sweep(ctx, r.bytes))
			close(r.done)
		case <-tick.C:
			e.sweepFailed(ctx, errors.Join(e.sweep(ctx, 0), e.boundOrphans()))
		}
	}
}

// MakeRoom has room for n bytes of output made, where there isn't any: as far
// as finished executions can make it.
func (e *Engine) MakeRoom(ctx context.Context, n int64) {
	n += e.quota.Reserve()
	if e.quota.Over(n) <= 0 {
		return
	}
	r := roomRequest{bytes: n + collectAhead, done: make(chan struct{})}
	select {
	case e.room <- r:
	case <-ctx.Done():
		return
	}
	<-r.done // soon: the work is bounded
}

// sweep collects what is too old, and what stands in the way of n bytes more. It
// collects nothing more while much of what it collected can't be removed.
func (e *Engine) sweep(ctx context.Context, n int64) error {
	err := e.removeLogs(ctx)
	if len(e.unremoved) >= collectBatch || e.keep == 0 && e.quota == nil {
		return err
	}
	for range collectMost {
		oldest, err := e.store.Oldest(ctx, collectBatch)
		if err != nil {
			return err
		}
		var old []store.Finished
		over := e.quota.Over(n)
		for _, f := range oldest {
			if over <= 0 && (e.keep == 0 || time.Since(f.At) < e.keep) {
				break
			}
			over -= f.Bytes
			old = append(old, f)
		}
		if err := e.forget(ctx, old); err != nil || len(old) < collectBatch {
			return err
		}
	}
	return nil
}

// sweepFailed notes in Health how a sweep went.
func (e *Engine) sweepFailed(ctx context.Context, err error) {
	switch {
	case err != nil && ctx.Err() == nil:
		e.sweepFailing = true
		e.setHealth("retention", HealthDegraded, "finished executions can't be collected: "+err.Error())
	case err == nil && e.sweepFailing:
		e.sweepFailing = false
		e.setHealth("retention", HealthOK, "")
	}
}

// forget deletes executions and then their output: a reader that still has one
// gets the rest as lost. If the server is killed first, the next start removes it.
func (e *Engine) forget(ctx context.Context, old []store.Finished) error {
	ids := make([]runtime.ExecutionID, len(old))
	for i, f := range old {
		ids[i] = f.ID
	}
	if err := e.store.DeleteExecutions(ctx, ids, time.Now().Add(spentKeyLife)); err != nil {
		return err
	}
	e.counts.collected.Add(int64(len(old)))
	for _, f := range old {
		e.unremoved[f.ID] = f.Bytes
	}
	return e.removeLogs(ctx)
}

// listRemovals learns, once, which output an earlier server didn't come to remove.
func (e *Engine) listRemovals(ctx context.Context) error {
	if e.listed {
		return nil
	}
	ids, err := e.store.Removals(ctx)
	if err != nil {
		return err
	}
	e.listed = true
	for _, id := range ids {
		if _, ours := e.unremoved[id]; !ours {
			e.unremoved[id] = 0 // the quota counts only what the store knows
		}
	}
	return nil
}

// removeLogs removes the output of executions that were deleted, also by an earlier
// server. The quota counts what can't be removed. The next call tries it again, and
// so does the next start.
func (e *Engine) removeLogs(ctx context.Context) error {
	unlisted := e.listRemovals(ctx)
	var removed []runtime.ExecutionID
	var failed error
	for id, bytes := range e.unremoved {
		if err := os.Remove(e.logPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
			continue
		}
		e.quota.Add(-bytes)
		e.unremoved[id] = 0
		removed = append(removed, id)
	}
	if err := e.store.Removed(ctx, removed); err != nil {
		return errors.Join(unlisted, failed, err)
	}
	for _, id := range removed {
		delete(e.unremoved, id)
	}
	if failed != nil {
		return fmt.Errorf("the output of %d can't be removed and still takes room; one of them: %w", len(e.unremoved), errors.Join(failed, unlisted))
	}
	return unlisted
}
