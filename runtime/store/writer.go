package store

import (
	"context"
	"errors"

	"github.com/rockpool/rockpool/runtime"
)

// batch is how many writes share a transaction at most.
const batch = 64

// checkBytes are so many that a disk that is nearly full refuses them.
const checkBytes = 64 << 10

var errClosed = errors.New("the store is closed")

// A write is one modifying statement, perhaps after some reads. Because
// SQLite undoes a failing statement by itself, a write that fails leaves the
// others of its transaction as they are; but see givesUp. It may be done again,
// after what it did was undone.
type write struct {
	do     func(*transaction) error
	result chan error // capacity 1
}

// write queues do and waits for its commit. Once it is queued, ctx doesn't
// stop it: the caller must know what is stored.
func (s *Store) write(ctx context.Context, doing string, do func(*transaction) error) error {
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
	results, undone := s.transact(writes)
	if undone && len(writes) > 1 { // one of them: the others are to be stored all the same
		for i := range writes {
			one, _ := s.transact(writes[i : i+1])
			results[i] = one[0]
		}
	}
	for i, w := range writes {
		w.result <- results[i]
	}
}

// transact does writes in one transaction, and returns what became of each.
// Undone says that nothing of them is stored, because there is no room for all.
func (s *Store) transact(writes []write) (results []error, undone bool) {
	results = make([]error, len(writes))
	err := func() error {
		if err := s.prepared.prepare(s.writes); err != nil {
			return err
		}
		begun, err := s.writes.Begin()
		if err != nil {
			return err
		}
		defer begun.Rollback() // does nothing after a commit
		tx := &transaction{begun, &s.prepared}
		for i, w := range writes {
			if results[i] = w.do(tx); givesUp(results[i]) {
				return results[i]
			}
		}
		s.dirty.Store(true)
		return begun.Commit()
	}()
	if err != nil {
		for i := range results {
			results[i] = err
		}
	}
	return results, isFull(err)
}

// givesUp reports whether an error is one with which SQLite may have ended the
// whole transaction, not just undone the statement: what is executed after it
// would be committed by itself.
func givesUp(err error) bool {
	return hasCode(err, sqliteBusy, sqliteNoMemory, sqliteInterrupt, sqliteIO, sqliteFull) // https://sqlite.org/lang_transaction.html
}
