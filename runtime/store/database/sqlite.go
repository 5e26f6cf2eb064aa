package database

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
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
	"golang.org/x/sys/unix"
	sqlite "modernc.org/sqlite" // also registers "sqlite"; pure Go, so the server needs no cgo

	"github.com/rockpool/rockpool/runtime/disk"
)

// A sqliteDB is a database in a file that one process at a time has open.
type sqliteDB struct {
	lock     *os.File
	reads    *sql.DB    // many connections
	writes   *sql.DB    // one connection, used by the writer only
	prepared statements // owned by the writer
	files    []file     // of the database, as they were at Open

	closed chan struct{}  // closed by close; ends checkpoints
	group  sync.WaitGroup // of checkpoints; close waits for it
	dirty  atomic.Bool    // something was committed since the last checkpoint

	checkpoint func() (whole bool, err error) // writes the log's content into the file
	began      atomic.Pointer[time.Time]      // start of the running checkpoint, nil if there is none
	stays      atomic.Pointer[error]          // why the last checkpoint failed, nil if it didn't
}

// Open opens the SQLite database at path, creates it if necessary, and brings its schema up to
// date. Only one process may have it open; the error for a second one names the holder.
func Open(ctx context.Context, path string) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	lock, err := acquire(ctx, path+".lock")
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	d := &sqliteDB{lock: lock, closed: make(chan struct{})}
	d.checkpoint = d.passive
	fresh, err := d.open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", path, errors.Join(err, d.closeFiles()))
	}
	d.group.Go(d.checkpoints)
	return (&DB{backend: d, reads: d.reads, fresh: fresh}).start(), nil
}

// open opens and migrates the database file. It reports whether the file is fresh.
func (d *sqliteDB) open(ctx context.Context, path string) (fresh bool, err error) {
	if err := create(path); err != nil {
		return false, err
	}
	// In WAL mode, NORMAL leaves fsync to checkpoints, which run concurrently with the writer (see
	// checkpoints). A commit doesn't wait for the disk and still survives a SIGKILL. If checkpoints
	// can't keep up, the writer makes one itself at 16 MiB; otherwise a busy server's log would grow
	// by gigabytes.
	file := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(10000)"
	const pragmas = "&_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=wal_autocheckpoint(4000)&_pragma=journal_size_limit(16777216)"
	source, first := file+pragmas, file
	// Incremental vacuum lets Shrink make the file smaller. It is set before the first page is written, and
	// never again: each connection that sets it writes to the file, and fails if the disk is full.
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		first += "&_pragma=auto_vacuum(INCREMENTAL)"
	}
	if d.writes, err = sql.Open("sqlite", first+pragmas); err != nil {
		return false, err
	}
	d.writes.SetMaxOpenConns(1)
	d.reads = d.openReads(source)
	d.reads.SetMaxIdleConns(4)
	provider, err := migrator(goose.DialectSQLite3, d.writes)
	if err != nil {
		return false, err
	}
	// The version before the migration shows whether the database is new.
	version, err := d.examine(ctx, file+"&mode=ro", newestOf(provider))
	if err == nil {
		err = protect(path)
	}
	if err == nil {
		_, err = provider.Up(ctx)
	}
	if err == nil {
		return version == 0, d.remember(path)
	}
	if isDamage(err) {
		err = fmt.Errorf("the file is damaged, or isn't a database of SQLite; restore it from a backup, %s, or move it away to start with an empty database: %w", recovers, err)
	}
	return false, err
}

// A connector opens connections to the database file that the store opened.
type connector struct {
	sqlite driver.Driver
	source string
	intact func() error // why the file at the path isn't the one that the store opened, nil if it is
}

// openReads returns connections for reading. Each is opened by path when it is needed. If another
// file had taken that path, SQLite would write this database's log into it and damage both. So
// opening fails then.
func (d *sqliteDB) openReads(source string) *sql.DB {
	return sql.OpenDB(connector{d.writes.Driver(), source, d.intact})
}

func (c connector) Connect(context.Context) (driver.Conn, error) {
	if err := c.intact(); err != nil {
		return nil, err
	}
	return c.sqlite.Open(c.source)
}

func (c connector) Driver() driver.Driver { return c.sqlite }

const recovers = "or save what is readable (sqlite3 rockpool.db .recover | sqlite3 new.db)"

// examine returns the version of the file's schema, and an error if it isn't a sound file of this program.
// It changes nothing: not even a foreign file's journal mode, or its permissions.
func (d *sqliteDB) examine(ctx context.Context, source string, newest int64) (version int64, err error) {
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if version, err = recognise(ctx, db, goose.DialectSQLite3, newest); err == nil {
		err = quickCheck(ctx, db)
	}
	return version, err
}

func create(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// protect ensures that other users can't read the database. SQLite gives new files next to it the same mode.
func protect(path string) error {
	for _, path := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Chmod(path, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (d *sqliteDB) remember(path string) error {
	for _, path := range []string{path, path + "-wal"} {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		d.files = append(d.files, file{path, info})
	}
	return nil
}

// lockPatience is how long to wait for a held lock. A server that was just killed may have been
// starting a program: the forked process holds the lock until it executes that program.
const lockPatience = time.Second

// acquire takes the lock file, or returns who holds it. The kernel releases it when the process ends.
func acquire(ctx context.Context, path string) (*os.File, error) {
	file, err := disk.OpenLock(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	if err := disk.Lock(ctx, file); errors.Is(err, disk.ErrLocked) {
		holder, _ := os.ReadFile(path)
		return nil, errors.Join(fmt.Errorf("process %s has it open: stop that server or use another data directory", holder), file.Close())
	} else if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	// A second process shows this process id in its error.
	if err := file.Truncate(0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := fmt.Fprint(file, os.Getpid()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// checkpoints writes commits to the disk within a second, so that they survive a power cut.
func (d *sqliteDB) checkpoints() {
	for tick := time.Tick(500 * time.Millisecond); ; {
		select {
		case <-d.closed:
			return
		case <-tick:
		}
		if !d.dirty.Swap(false) {
			continue
		}
		now := time.Now()
		d.began.Store(&now)
		whole, err := d.checkpoint()
		d.began.Store(nil)
		switch {
		case err != nil: // a failing disk may show only here, since commits go to the page cache
			d.stays.Store(&err)
			d.dirty.Store(true)
		case !whole: // the state of the disk is unknown
			d.dirty.Store(true)
		default:
			d.stays.Store(nil)
		}
	}
}

// passive makes a checkpoint, which never blocks the writer. whole is false if part of the log
// stays, because others use it.
func (d *sqliteDB) passive() (whole bool, err error) {
	var busy, frames, stored int
	err = d.reads.QueryRow("PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &frames, &stored)
	return busy == 0 && stored >= frames, err
}

func (*sqliteDB) lead(context.Context) error { return nil } // holding the lock is enough

// damaged says that the file is damaged, and what to do. A failing disk can also look like damage; the error
// then names the disk.
func (d *sqliteDB) damaged(err error) error {
	if failed := d.tryFile(); errors.Is(failed, unix.EIO) || errors.Is(failed, unix.EROFS) {
		return fmt.Errorf("the database is not writable: %s: %w", cmp.Or(disk.Advice(failed), diskFailed), errors.Join(failed, err))
	}
	return fmt.Errorf("the database %s is damaged: stop the server, and restore the database from its backup, %s: %w", d.files[0].path, recovers, err)
}

func (*sqliteDB) stalls() string {
	return "the database has stored nothing for 4 s: the disk stalls, or another program has locked the database (fuser -v shows the programs that have it open)"
}

func (*sqliteDB) giveUp() {} // writes wait for nothing except the disk

// close ends the checkpoints before it closes the connections that they use.
func (d *sqliteDB) close() error {
	close(d.closed)
	d.group.Wait()
	return d.closeFiles()
}

// closeFiles closes the connections, then unlocks the database.
func (d *sqliteDB) closeFiles() error {
	var errs []error
	for _, db := range []*sql.DB{d.reads, d.writes} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, d.lock.Close())...)
}

// transact rolls back everything if a statement fails.
func (d *sqliteDB) transact(writes []write) (results []error, undone bool) {
	results = make([]error, len(writes))
	err := func() error {
		if err := d.prepared.prepare(d.writes); err != nil {
			return err
		}
		begun, err := d.writes.Begin()
		if err != nil {
			return err
		}
		defer begun.Rollback() // does nothing after a commit
		tx := &Tx{begun, &d.prepared, context.Background()}
		for i, w := range writes {
			if results[i] = w.do(tx); is[*sqlite.Error](results[i]) {
				return results[i]
			}
		}
		err = begun.Commit()
		// After the commit: a checkpoint that ran before it would clear the mark without the commit.
		d.dirty.Store(true)
		return err
	}()
	if err != nil {
		fill(results, err)
	}
	// Each of these errors would end the others' transactions, too.
	return results, is[*sqlite.Error](err) && !hasCode(err, sqliteBusy, sqliteNoMemory, sqliteInterrupt, sqliteIO)
}
