package store

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// batch is how many writes share a transaction at most.
const batch = 64

// checkBytes are so many that a disk that is nearly full refuses them.
const checkBytes = 64 << 10

var errClosed error = runtime.Errorf(runtime.CodeClusterUnavailable, "the store is closed")

// A write is modifying statements, perhaps after some reads. On SQLite those before a
// statement that fails stay, and so do the others of its transaction; but see givesUp. On
// PostgreSQL all of it is undone. Do may be called several times, and sets all of its results anew each time.
type write struct {
	do     func(*transaction) error
	result chan error // capacity 1
}

// write queues do and waits for its commit. Once it is queued, ctx doesn't
// stop it: the caller must know what is stored.
func (s *Store) write(ctx context.Context, doing string, do func(*transaction) error) error {
	w, err := s.enqueue(ctx, do)
	if err != nil {
		return err
	}
	return s.committed(<-w.result, doing)
}

// rewrite is like write, for writes that are safe to repeat. It returns when ctx ends; the write
// may still be stored.
func (s *Store) rewrite(ctx context.Context, doing string, do func(*transaction) error) error {
	w, err := s.enqueue(ctx, do)
	if err != nil {
		return err
	}
	select {
	case err := <-w.result:
		return s.committed(err, doing)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Store) enqueue(ctx context.Context, do func(*transaction) error) (write, error) {
	w := write{do: do, result: make(chan error, 1)}
	select {
	case s.queue <- w:
		return w, nil
	case <-ctx.Done():
		return w, context.Cause(ctx)
	case <-s.closed:
		return w, errClosed
	}
}

// committed returns how a write ended, and notes whether there was room for it.
func (s *Store) committed(err error, doing string) error {
	err = typed(err, doing)
	if runtime.CodeOf(err) == runtime.CodeStorageFull {
		s.full.Store(&err)
	} else if err == nil {
		s.full.Store(nil)
	}
	return err
}

// writer is the one goroutine that writes.
func (s *Store) writer() {
	for {
		select {
		case <-s.closed:
			return
		case first := <-s.queue:
			s.commit(s.collect(first))
		}
	}
}

// collect returns first and what else waits already.
func (s *Store) collect(first write) []write {
	writes := []write{first}
	for len(writes) < batch {
		select {
		case w := <-s.queue:
			writes = append(writes, w)
		default:
			return writes
		}
	}
	return writes
}

func (s *Store) commit(writes []write) {
	results, undone := s.db.transact(writes)
	if undone && len(writes) > 1 { // one of them: the others are to be stored all the same
		for i := range writes {
			one, _ := s.db.transact(writes[i : i+1])
			results[i] = one[0]
		}
	}
	for i, w := range writes {
		w.result <- results[i]
	}
}
