// Package store keeps what outlives the server in a database: executions and spent keys for the engine;
// environments, runners and claims for a local cluster. The database is SQLite in a file, or PostgreSQL,
// which several servers share and which also stores the output of executions.
//
// A write that returned nil survives a SIGKILL of the process. It also survives a power cut: on SQLite
// after a second (see sqliteDB.checkpoints), on PostgreSQL as that is configured. Methods are safe for
// concurrent use. Concurrent writes share a transaction. Both databases run the same statements.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// A Store is an open database. Close it.
type Store struct {
	db     database
	reads  reads
	taken  chan struct{} // see Taken
	shared bool
	fresh  bool // it was created by Open

	queue  chan write            // received by writer only
	closed chan struct{}         // closed by Close: no more writes are accepted
	full   atomic.Pointer[error] // why the last write found no room; nil: it found room
	damage atomic.Pointer[error] // the first error that said that the database is damaged; nil: none did
	group  sync.WaitGroup        // of the store's goroutines; Close waits for it

	searching *fairqueue.Limiter // limits concurrent searches
	mend      sync.Once          // starts mending at the first Lead
	mended    chan struct{}      // closed when searches find all executions

	check      *syncs.Probe
	unreadable unreadable

	oldestDay string // oldest day that addToDay kept; owned by the writer
}

// A database is the part of a store that differs between SQLite and PostgreSQL.
type database interface {
	// transact runs writes in one transaction, and returns the result of each. undone says that one
	// of them prevented all from being stored. Only the writer calls it.
	transact(writes []write) (results []error, undone bool)

	lead(ctx context.Context) error // see Store.Lead

	// check returns an error that says what to do, unless the database works. write writes and reads.
	check(write func() error) error
	stalls() string          // Check's message for a write that takes too long
	damaged(err error) error // Check's error for a damaged database

	giveUp() // ends waiting writes without storing them
	close() error
}

// reads are connections that read committed data.
type reads struct {
	db    *sql.DB
	again func(ctx context.Context, since time.Duration, err error) bool // whether to retry, after a pause; nil: never
	note  func(error) error                                              // see Store.note
}

// retry repeats a read while its error is a lost connection and again allows it.
func (r reads) retry(ctx context.Context, read func() error) error {
	for began := time.Now(); ; {
		err := read()
		if err == nil || r.again == nil || !isLost(err) {
			return r.note(err)
		}
		if !r.again(ctx, time.Since(began), err) {
			return broke(err)
		}
	}
}

// QueryContext reads rows. The caller closes them.
func (r reads) QueryContext(ctx context.Context, text string, args ...any) (*rowSet, error) {
	var rows *sql.Rows
	err := r.retry(ctx, func() (err error) {
		rows, err = r.db.QueryContext(ctx, text, args...) //nolint:rowserrcheck,sqlclosecheck // the caller does
		return err
	})
	return &rowSet{rows, r.note}, err
}

// QueryRowContext returns a row, which is read when it is scanned.
func (r reads) QueryRowContext(ctx context.Context, text string, args ...any) row {
	return func(into ...any) error {
		return r.retry(ctx, func() error { return r.db.QueryRowContext(ctx, text, args...).Scan(into...) })
	}
}

// A row is a row that hasn't been read yet.
type row func(into ...any) error

// Scan reads the row.
func (r row) Scan(into ...any) error { return r(into...) }

// start starts the writer of a newly opened store. Close waits for it.
func (s *Store) start() *Store {
	s.queue, s.closed = make(chan write), make(chan struct{})
	s.searching, s.mended = fairqueue.NewLimiter(searchesAtOnce), make(chan struct{})
	s.check, s.reads.note = syncs.NewProbe(s.tryWrite), s.note
	s.group.Go(s.writer)
	return s
}

// Lead makes this store the only one that writes, of all that share its database. The previous
// leader's later writes fail: see Taken. On SQLite a store leads from the start. Lead also
// starts making the executions of older servers searchable in the background.
func (s *Store) Lead(ctx context.Context) error {
	if err := s.reads.retry(ctx, func() error { return s.db.lead(ctx) }); err != nil {
		return typed(err, "lead the servers of the database")
	}
	s.mend.Do(func() { s.mending(ctx) })
	return nil
}

// Taken returns a channel that is closed when a write found that another store leads now.
func (s *Store) Taken() <-chan struct{} { return s.taken }

// Leads returns nil if this store leads, and ErrTaken if another one does by now. On a shared database it
// costs a write.
func (s *Store) Leads(ctx context.Context) error {
	if !s.shared {
		return nil
	}
	return s.write(ctx, "check the leader", func(*transaction) error { return nil })
}

// Shared reports whether other servers may have the database open too. If so, it stores the output of
// executions.
func (s *Store) Shared() bool { return s.shared }

// Fresh reports whether the database was missing or empty when the store was opened.
func (s *Store) Fresh() bool { return s.fresh }

// closeWithin is how long running writes may still wait for PostgreSQL at Close.
const closeWithin = 2 * time.Second

// Close waits for running writes and closes the database. Later writes return CLUSTER_UNAVAILABLE.
func (s *Store) Close() error {
	select {
	case <-s.closed:
		return nil
	default:
		close(s.closed)
	}
	late := time.AfterFunc(closeWithin, s.db.giveUp)
	defer late.Stop()
	s.group.Wait()
	s.check.Close()
	return s.db.close()
}

// typed maps a full disk to STORAGE_FULL and an unreachable database to CLUSTER_UNAVAILABLE.
func typed(err error, doing string) error {
	var e *runtime.Error
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case hasCode(err, sqliteFull):
		return runtime.Wrap(runtime.CodeStorageFull, err, "the server's disk is full: free some space in the data directory")
	case hasState(err, stateDiskFull):
		return runtime.Wrap(runtime.CodeStorageFull, err, "PostgreSQL's disk is full: free some space there")
	case errors.Is(err, errBroke):
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "%s: PostgreSQL is unreachable; try again later", doing)
	case isDamage(err):
		return fmt.Errorf("%s: the database is damaged; `health` says what to do: %w", doing, err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}
