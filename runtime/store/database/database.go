// Package database opens the server's database: SQLite in a file, or PostgreSQL, which several servers share.
// It runs reads and transactions, brings the schema up to date, and reports a database that doesn't work.
//
// A write that returned nil survives a SIGKILL of the process. It also survives a power cut: on SQLite
// after a second (see sqliteDB.checkpoints), on PostgreSQL as that is configured. Methods are safe for
// concurrent use. Concurrent writes share a transaction. Both databases run the same statements.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// A DB is an open database. Close it.
type DB struct {
	backend backend
	reads   *sql.DB                                                        // many connections
	again   func(ctx context.Context, since time.Duration, err error) bool // whether to retry a read, after a pause; nil means never
	taken   chan struct{}                                                  // see Taken
	shared  bool
	fresh   bool // Open created it

	queue  chan write            // received by writer only
	closed chan struct{}         // closed by Close: no more writes are accepted
	full   atomic.Pointer[error] // why the last write found no room; nil if it found room
	damage atomic.Pointer[error] // the first error that said that the database is damaged
	group  sync.WaitGroup        // of the writer; Close waits for it
	check  *syncs.Probe
}

// A backend is the part of a database that differs between SQLite and PostgreSQL.
type backend interface {
	// transact runs writes in one transaction, and returns the result of each. undone says that one
	// of them prevented all from being stored. Only the writer calls it.
	transact(writes []write) (results []error, undone bool)

	lead(ctx context.Context) error // see DB.Lead

	// check returns an error that says what to do, unless the database works. write writes and reads.
	check(write func() error) error
	stalls() string          // Check's message for a write that takes too long
	damaged(err error) error // Check's error for a damaged database

	giveUp() // ends waiting writes without storing them
	close() error
}

func (d *DB) start() *DB {
	d.queue, d.closed = make(chan write), make(chan struct{})
	d.check = syncs.NewProbe(d.tryWrite)
	d.group.Go(d.writer)
	return d
}

// Lead makes this server the only one that writes, of all that share the database. The previous leader's
// later writes fail: see Taken. On SQLite a server leads from the start.
func (d *DB) Lead(ctx context.Context) error {
	return Wrap(d.retry(ctx, func() error { return d.backend.lead(ctx) }), "lead the servers of the database")
}

// Taken returns a channel that is closed when a write found that another server leads now.
func (d *DB) Taken() <-chan struct{} { return d.taken }

// Leads returns nil if this server leads, and ErrTaken if another one does by now. On a shared database it
// costs a write.
func (d *DB) Leads(ctx context.Context) error {
	if !d.shared {
		return nil
	}
	return d.Write(ctx, "check the leader", func(*Tx) error { return nil })
}

// Shared reports whether other servers may have the database open too.
func (d *DB) Shared() bool { return d.shared }

// Fresh reports whether the database was missing or empty when it was opened.
func (d *DB) Fresh() bool { return d.fresh }

// closeWithin is how long running writes may still wait for PostgreSQL at Close.
const closeWithin = 2 * time.Second

// Close waits for running writes and closes the database. Later writes return CLUSTER_UNAVAILABLE.
func (d *DB) Close() error {
	if syncs.Closed(d.closed) {
		return nil
	}
	close(d.closed)
	late := time.AfterFunc(closeWithin, d.backend.giveUp)
	defer late.Stop()
	d.group.Wait()
	d.check.Close()
	return d.backend.close()
}

// Wrap adds what was being done to an error. It maps a full disk to STORAGE_FULL and an unreachable database to
// CLUSTER_UNAVAILABLE.
func Wrap(err error, doing string) error {
	switch {
	case err == nil || is[*runtime.Error](err):
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
