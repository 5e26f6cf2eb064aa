package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/rockpool/rockpool/runtime"
)

// batch is how many writes share a transaction at most.
const batch = 64

var errClosed = errors.New("the store is closed")

// A write is one modifying statement, perhaps after some reads. Because
// SQLite undoes a failing statement by itself, a write that fails leaves the
// others of its transaction as they are.
type write struct {
	do     func(*sql.Tx) error
	result chan error // capacity 1
}

// write queues do and waits for its commit. Once it is queued, ctx doesn't
// stop it: the caller must know what is stored.
func (s *Store) write(ctx context.Context, doing string, do func(*sql.Tx) error) error {
	w := write{do: do, result: make(chan error, 1)}
	select {
	case s.queue <- w:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.closed:
		return errClosed
	}
	err := typed(<-w.result, doing)
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
	results := make([]error, len(writes))
	err := func() error {
		tx, err := s.writes.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after a commit
		for i, w := range writes {
			results[i] = w.do(tx)
		}
		s.dirty.Store(true)
		return tx.Commit()
	}()
	for i, w := range writes {
		if err != nil {
			w.result <- err
		} else {
			w.result <- results[i]
		}
	}
}
