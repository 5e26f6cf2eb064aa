// Package store keeps in one SQLite database what outlives the server:
// executions and spent claim keys for the engine; environments, runners and
// claims for a local cluster.
//
// A write that returned nil survives a SIGKILL of the process; within a second
// it also survives a power cut (see Store.checkpoints). Methods are safe for
// concurrent use. Writes made at the same time share one transaction.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // registers "sqlite"; pure Go, so the server needs no cgo

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/lockfile"
	"github.com/rockpool/rockpool/runtime/probe"
)

//go:embed migrations/*.sql
var migrations embed.FS

// A Store is an open database. Close it.
type Store struct {
	lock     *os.File
	reads    *sql.DB    // many connections
	writes   *sql.DB    // one connection, used by the writer only
	prepared statements // the writer's
	queue    chan write
	closed   chan struct{}         // closed by Close: no more writes are taken
	dirty    atomic.Bool           // something was committed since the last checkpoint
	full     atomic.Pointer[error] // why the last write found no room; nil: it did
	group    sync.WaitGroup

	checkpoint func() (whole bool, err error)
	began      atomic.Pointer[time.Time] // when the checkpoint that is under way began; nil: none is
	stays      atomic.Pointer[error]     // why the last checkpoint failed; nil: it didn't, or there was none

	fresh      bool   // there was none
	files      []file // of the database, as they were when it was opened
	check      *probe.Probe
	unreadable unreadable
}

// Open opens the database at path, makes it if there is none, and brings its
// schema up to date. One process has it at a time: for a second one the error
// says who holds it.
func Open(ctx context.Context, path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	lock, err := acquire(ctx, path+".lock")
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	s := &Store{lock: lock, queue: make(chan write), closed: make(chan struct{})}
	s.check = probe.New(s.tryWrite)
	s.checkpoint = s.passive
	if err := s.open(ctx, path); err != nil {
		return nil, fmt.Errorf("open the store %s: %w", path, errors.Join(err, s.closeFiles()))
	}
	s.group.Go(s.writer)
	s.group.Go(s.checkpoints)
	return s, nil
}

func (s *Store) open(ctx context.Context, path string) error {
	// In WAL mode NORMAL leaves fsync to checkpoints, which run beside the
	// writer (see checkpoints): a commit costs no disk wait, and still survives a
	// SIGKILL. Only where those can't keep up does the writer make one itself,
	// at 16 MiB: without that a busy server's log grew by gigabytes.
	source := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_txlock=immediate" +
		"&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=wal_autocheckpoint(4000)&_pragma=journal_size_limit(67108864)"
	var err error
	if s.writes, err = sql.Open("sqlite", source); err != nil {
		return err
	}
	s.writes.SetMaxOpenConns(1)
	s.reads = s.openReads(source)
	s.reads.SetMaxIdleConns(4)
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, s.writes, files)
	if err != nil {
		return err
	}
	version, err := provider.GetDBVersion(ctx)
	s.fresh = version == 0
	if err == nil {
		_, err = provider.Up(ctx)
	}
	if err == nil {
		return s.remember(path)
	}
	if hasCode(err, sqliteCorrupt, sqliteNoDatabase) {
		return fmt.Errorf("%w: the file is damaged; restore it from a backup, or move it away to start anew, without the environments and executions in it", err)
	}
	return err
}

// remember notes which files are open.
func (s *Store) remember(path string) error {
	for _, path := range []string{path, path + "-wal"} {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		s.files = append(s.files, file{path, info})
	}
	return nil
}

// lockPatience is how long a lock that is held is waited for: a server that was
// just killed may have been starting a program, whose process has the lock
// until it comes to be that program.
const lockPatience = time.Second

// acquire takes the lock file, or says who has it. The kernel lets go of it
// when the process ends, however it ends.
func acquire(ctx context.Context, path string) (*os.File, error) {
	file, err := lockfile.Open(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	if err := lockfile.Wait(ctx, file); errors.Is(err, lockfile.ErrHeld) {
		holder, _ := os.ReadFile(path)
		return nil, errors.Join(fmt.Errorf("process %s has it open: stop that server, or use another data directory", holder), file.Close())
	} else if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := file.Truncate(0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := fmt.Fprint(file, os.Getpid()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Fresh reports whether there was no database when the store was opened, or an empty
// file.
func (s *Store) Fresh() bool { return s.fresh }

// Close waits for the writes under way, and closes the database. Writes after
// it fail.
func (s *Store) Close() error {
	select {
	case <-s.closed:
		return nil
	default:
		close(s.closed)
	}
	s.group.Wait()
	s.check.Close()
	return s.closeFiles()
}

func (s *Store) closeFiles() error {
	var errs []error
	for _, db := range []*sql.DB{s.reads, s.writes} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// checkpoints brings commits to the disk within a second, so that they survive a
// power cut.
func (s *Store) checkpoints() {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-tick.C:
		}
		if !s.dirty.Swap(false) {
			continue
		}
		now := time.Now()
		s.began.Store(&now)
		whole, err := s.checkpoint()
		s.began.Store(nil)
		switch {
		case err != nil: // a disk that fails may show only here: commits go to the page cache
			s.stays.Store(&err)
			s.dirty.Store(true)
		case !whole: // nothing is known of the disk
			s.dirty.Store(true)
		default:
			s.stays.Store(nil)
		}
	}
}

// passive makes a checkpoint, which never blocks the writer. whole is false where
// others use the log, so that a part of it stays.
func (s *Store) passive() (whole bool, err error) {
	var busy, frames, stored int
	err = s.reads.QueryRow("PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &frames, &stored)
	return busy == 0 && stored >= frames, err
}

// typed turns a full disk into STORAGE_FULL.
func typed(err error, doing string) error {
	var e *runtime.Error
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case isFull(err):
		return runtime.Wrap(runtime.CodeStorageFull, err, "the server's disk is full: free some room in the data directory")
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

func isFull(err error) bool { return hasCode(err, sqliteFull) }
