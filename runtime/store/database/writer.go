package database

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// batch bounds the writes that share a transaction.
const batch = 64

// checkBytes is enough for a nearly full disk to refuse it.
const checkBytes = 64 << 10

var errClosed error = runtime.Errorf(runtime.CodeClusterUnavailable, "the store is closed")

// A write is some statements that modify, perhaps after some reads. They are stored together or not
// at all. do may be called several times, and must set all its results each time.
type write struct {
	do     func(*Tx) error
	result chan error // capacity 1
}

// Write queues do and waits for its commit. Once queued, ctx doesn't interrupt it, because the
// caller must know what is stored.
func (d *DB) Write(ctx context.Context, doing string, do func(*Tx) error) error {
	w, err := d.enqueue(ctx, do)
	if err != nil {
		return err
	}
	return d.committed(<-w.result, doing)
}

// Rewrite is like Write, for writes that are safe to repeat. It returns when ctx ends; the write
// may still be stored.
func (d *DB) Rewrite(ctx context.Context, doing string, do func(*Tx) error) error {
	w, err := d.enqueue(ctx, do)
	if err != nil {
		return err
	}
	select {
	case err := <-w.result:
		return d.committed(err, doing)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Exec is Write of one statement.
func (d *DB) Exec(ctx context.Context, doing, text string, args ...any) error {
	return d.Write(ctx, doing, func(tx *Tx) error {
		_, err := tx.Exec(text, args...)
		return err
	})
}

// enqueue queues a write. Its result arrives at the channel result once its transaction has ended.
// ctx ends only the wait for the queue.
func (d *DB) enqueue(ctx context.Context, do func(*Tx) error) (write, error) {
	w := write{do: do, result: make(chan error, 1)}
	select {
	case d.queue <- w:
		return w, nil
	case <-ctx.Done():
		return w, context.Cause(ctx)
	case <-d.closed:
		return w, errClosed
	}
}

// committed returns the result of a write, and records whether there was room for it.
func (d *DB) committed(err error, doing string) error {
	err = Wrap(d.note(err), doing)
	if runtime.CodeOf(err) == runtime.CodeStorageFull {
		d.full.Store(&err)
	} else if err == nil {
		d.full.Store(nil)
	}
	return err
}

// writer runs all writes in one goroutine until the store closes.
func (d *DB) writer() {
	for {
		select {
		case <-d.closed:
			return
		case first := <-d.queue:
			d.commit(d.collect(first))
		}
	}
}

// collect returns first and the other writes that are waiting already.
func (d *DB) collect(first write) []write {
	writes := []write{first}
	for len(writes) < batch {
		select {
		case w := <-d.queue:
			writes = append(writes, w)
		default:
			return writes
		}
	}
	return writes
}

// commit stores writes in one transaction and sends each its result. If one of them fails, each
// runs in its own.
func (d *DB) commit(writes []write) {
	results, undone := d.backend.transact(writes)
	if undone && len(writes) > 1 { // one of them failed: store the others nevertheless
		for i := range writes {
			one, _ := d.backend.transact(writes[i : i+1])
			results[i] = one[0]
		}
	}
	for i, w := range writes {
		w.result <- results[i]
	}
}
