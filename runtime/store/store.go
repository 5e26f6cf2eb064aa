// Package store keeps in a database what outlives the server: executions and spent claim keys
// for the engine; environments, runners and claims for a local cluster. It is SQLite, in a file,
// or PostgreSQL, which several servers share and which has the output of executions, too.
//
// A write that returned nil survives a SIGKILL of the process, and a power cut: on SQLite within
// a second (see sqlite.checkpoints), on PostgreSQL as that is configured. Methods are safe for
// concurrent use. Writes made at the same time share one transaction. The statements are the same
// for both.
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
	"github.com/rockpool/rockpool/runtime/probe"
	"github.com/rockpool/rockpool/runtime/turns"
)

// A Store is an open database. Close it.
type Store struct {
	db     database
	reads  reads
	taken  chan struct{} // see Taken
	shared bool
	fresh  bool // there was none

	queue  chan write
	closed chan struct{}         // closed by Close: no more writes are taken
	full   atomic.Pointer[error] // why the last write found no room; nil: it did
	group  sync.WaitGroup

	searching *turns.Gate   // of searches
	mend      sync.Once     // of Lead
	mended    chan struct{} // closed when the search has all executions

	check      *probe.Probe
	unreadable unreadable

	oldestDay string // that addToDay left; the writer's
}

// A database is SQLite's or PostgreSQL's.
type database interface {
	// Transact does writes in one transaction, and returns what became of each. Undone says that
	// nothing of them is stored because of one of them. The writer alone calls it.
	transact(writes []write) (results []error, undone bool)

	lead(ctx context.Context) error // see Store.Lead

	// Check returns an error, which says what to do, unless the database works. Write writes to it, and reads.
	check(write func() error) error
	stalls() string // what Check says of a write that takes too long

	giveUp() // ends the writes that wait, undone
	close() error
}

// Reads are connections for reading what was committed.
type reads struct {
	db    *sql.DB
	again func(ctx context.Context, since time.Duration, err error) bool // whether to read again, after a pause; nil: never
}

func (r reads) retry(ctx context.Context, read func() error) error {
	for began := time.Now(); ; {
		err := read()
		if err == nil || r.again == nil || !isLost(err) {
			return err
		}
		if !r.again(ctx, time.Since(began), err) {
			return broke(err)
		}
	}
}

// QueryContext reads rows. The caller closes them.
func (r reads) QueryContext(ctx context.Context, text string, args ...any) (rows *sql.Rows, err error) {
	err = r.retry(ctx, func() error {
		rows, err = r.db.QueryContext(ctx, text, args...) //nolint:rowserrcheck,sqlclosecheck // the caller does
		return err
	})
	return rows, err
}

// QueryRowContext reads a row when that is scanned.
func (r reads) QueryRowContext(ctx context.Context, text string, args ...any) row {
	return func(into ...any) error {
		return r.retry(ctx, func() error { return r.db.QueryRowContext(ctx, text, args...).Scan(into...) })
	}
}

// A row is one that is still to be read.
type row func(into ...any) error

// Scan reads it.
func (r row) Scan(into ...any) error { return r(into...) }

// start starts the writer of a store over an open database.
func (s *Store) start() *Store {
	s.queue, s.closed = make(chan write), make(chan struct{})
	s.searching, s.mended = turns.NewGate(searchesAtOnce), make(chan struct{})
	s.check = probe.New(s.tryWrite)
	s.group.Go(s.writer)
	return s
}

// Lead makes this store the one that writes, of all that share its database. The one that did
// so before writes no more: see Taken. SQLite's leads from the start. Beside all else, the store then
// makes the executions of earlier servers searchable.
func (s *Store) Lead(ctx context.Context) error {
	if err := s.reads.retry(ctx, func() error { return s.db.lead(ctx) }); err != nil {
		return typed(err, "lead the servers of the database")
	}
	s.mend.Do(func() { s.mending(ctx) })
	return nil
}

// Taken is closed when a write found that another store leads now.
func (s *Store) Taken() <-chan struct{} { return s.taken }

// Leads returns nil if this store is the one that writes: after a pause another may be. That costs a
// write where several have the database.
func (s *Store) Leads(ctx context.Context) error {
	if !s.shared {
		return nil
	}
	return s.write(ctx, "look who leads", func(*transaction) error { return nil })
}

// Shared reports whether other servers may have the database open, too. Then it has the
// output of executions.
func (s *Store) Shared() bool { return s.shared }

// Fresh reports whether there was no database when the store was opened, or an empty
// one.
func (s *Store) Fresh() bool { return s.fresh }

// closeWithin is for how long writes under way may still wait for PostgreSQL.
const closeWithin = 2 * time.Second

// Close waits for the writes under way, and closes the database. Writes after
// it fail.
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

// typed turns a full disk into STORAGE_FULL.
func typed(err error, doing string) error {
	var e *runtime.Error
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case hasCode(err, sqliteFull):
		return runtime.Wrap(runtime.CodeStorageFull, err, "the server's disk is full: free some room in the data directory")
	case hasState(err, stateDiskFull):
		return runtime.Wrap(runtime.CodeStorageFull, err, "PostgreSQL's disk is full: free some room there")
	case errors.Is(err, errBroke):
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "%s: PostgreSQL can't be reached; try again later", doing)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}
