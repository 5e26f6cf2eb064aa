package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

const (
	postgresReads = 16 // most connections

	lostAfter  = 10 * time.Second // how long sent data may stay unacknowledged before the connection is closed
	readWithin = 10 * time.Second // how long reads are retried while PostgreSQL is unreachable
)

// A postgresDB is a database that several servers have open. Only the one that led last writes. The table
// leader contains that server's epoch. Each transaction locks this row, so that no other server can lead
// before it has ended, and writes its own number there. After a connection broke, the number shows
// whether the transaction was committed.
//
// While PostgreSQL is unreachable, writes wait, as they do for a stalled disk.
type postgresDB struct {
	reads, writes *sql.DB
	leadership    atomic.Pointer[leadership] // nil if this server doesn't lead
	taken         func()                     // called when another server leads
	last          atomic.Pointer[error]      // why the writer waits, nil if it doesn't

	running context.Context // of transactions
	stop    context.CancelFunc
}

// A leadership is that of a server since its call of lead.
type leadership struct {
	epoch  int64
	number int64 // of the last transaction; owned by the writer
}

var errFollows error = runtime.Errorf(runtime.CodeClusterUnavailable, "this server doesn't lead")

// ErrTaken says that another store leads now.
var ErrTaken error = runtime.Errorf(runtime.CodeClusterUnavailable, "another server leads now, with the same database")

// errSetBack says that a committed transaction no longer exists.
var errSetBack error = runtime.Errorf(runtime.CodeClusterUnavailable, "the database was reset to an earlier state: this server restarts from that state")

var errCommitted = errors.New("it was committed")

// OpenShared opens a PostgreSQL database and brings its schema up to date. url has the form that libpq
// accepts. Variables such as PGPASSWORD, and ~/.pgpass, supply missing parts. Other servers
// may have the database open: see Lead.
func OpenShared(ctx context.Context, url string) (*DB, error) {
	config, err := pgx.ParseConfig(url) // the error doesn't contain the password
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "rockpool"
	// A server whose machine vanished or that was suspended must not keep others from leading.
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "2000"
	config.RuntimeParams["statement_timeout"], config.RuntimeParams["lock_timeout"] = "0", "0" // the writer waits
	if config.ValidateConnect == nil {
		// Of several hosts, use the one that accepts writes.
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = lostAfter
	}
	config.DialFunc = (&net.Dialer{Control: limitUnacknowledged}).DialContext
	d := &postgresDB{reads: stdlib.OpenDB(*config), writes: stdlib.OpenDB(*config)}
	d.running, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	// Only the writer uses it, for one transaction at a time.
	d.writes.SetMaxOpenConns(1)
	d.reads.SetMaxOpenConns(postgresReads)
	d.reads.SetMaxIdleConns(postgresReads)
	if err := d.migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open the database at %s: %w", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), err), d.close())
	}
	opened := &DB{backend: d, reads: d.reads, again: d.again, shared: true, taken: make(chan struct{})}
	d.taken = sync.OnceFunc(func() { close(opened.taken) })
	return opened.start(), nil
}

// Examine returns the version of the PostgreSQL at a URL without changing anything there. The error
// says why it can't be used.
func Examine(ctx context.Context, url string) (version string, err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return "", err
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	var creates bool
	err = db.QueryRowContext(ctx, "SELECT current_setting('server_version'), has_schema_privilege(current_schema(), 'CREATE')").Scan(&version, &creates)
	if err == nil && !creates {
		err = fmt.Errorf("user %s may not create tables in the current schema: grant CREATE on it", config.User)
	}
	if err != nil {
		return version, err
	}
	provider, err := migrator(goose.DialectPostgres, db)
	if err == nil {
		_, err = recognise(ctx, db, goose.DialectPostgres, newestOf(provider))
	}
	return version, err
}

// limitUnacknowledged makes the kernel close a connection on which sent data stays unacknowledged for
// lostAfter.
func limitUnacknowledged(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		// This fails for a Unix socket, which doesn't need it.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(lostAfter.Milliseconds()))
	})
}

// migrate brings the schema up to date. Only one server at a time migrates.
func (d *postgresDB) migrate(ctx context.Context) error {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60)) // other servers may be starting too
	if err != nil {
		return err
	}
	provider, err := migrator(goose.DialectPostgres, d.reads, goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	if _, err := recognise(ctx, d.reads, goose.DialectPostgres, newestOf(provider)); err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// lead makes this server the only one whose writes are committed: each transaction checks the
// epoch.
func (d *postgresDB) lead(ctx context.Context) error {
	var epoch int64
	// This waits for the running transaction of the previous leader.
	if err := d.reads.QueryRowContext(ctx, "UPDATE leader SET epoch = epoch + 1, number = 0 RETURNING epoch").Scan(&epoch); err != nil {
		return err
	}
	d.leadership.Store(&leadership{epoch: epoch})
	return nil
}

// transact rolls back everything if PostgreSQL refuses a statement. If the connection is lost, it
// repeats the same writes.
func (d *postgresDB) transact(writes []write) (results []error, undone bool) {
	results = make([]error, len(writes))
	mine := d.leadership.Load()
	if mine == nil {
		return fill(results, errFollows), false
	}
	sent := false // a commit was sent, and its result is unknown
	pause := backoff.Backoff{First: 10 * time.Millisecond, Last: 200 * time.Millisecond}
	for {
		err := d.attempt(mine, writes, results, &sent)
		if isLost(err) && d.running.Err() == nil {
			d.last.Store(&err)
			if hasState(err, stateReadOnly) { // it became a read-only standby
				// This closes the idle connection, so that the next attempt connects again.
				d.writes.SetMaxIdleConns(0)
				d.writes.SetMaxIdleConns(1)
			}
			if pause.Wait(d.running) == nil {
				continue
			}
		}
		d.last.Store(nil)
		switch {
		case err == nil, errors.Is(err, errCommitted): // in this case results are those of the earlier attempt
			// Repeated attempts use the same number, so it advances only after the commit.
			mine.number++
			return results, false
		case d.running.Err() != nil:
			err = errClosed
		case errors.Is(err, ErrTaken), errors.Is(err, errSetBack):
			d.taken()
		}
		return fill(results, err), isRefusal(err)
	}
}

// fill sets every result to err, and returns them.
func fill(results []error, err error) []error {
	for i := range results {
		results[i] = err
	}
	return results
}

// attempt runs writes in one transaction, unless an earlier attempt was committed. It sets sent before it
// commits.
func (d *postgresDB) attempt(mine *leadership, writes []write, results []error, sent *bool) error {
	begun, err := d.writes.BeginTx(d.running, nil)
	if err != nil {
		return broke(err)
	}
	defer begun.Rollback() // does nothing after a commit
	number := mine.number + 1
	result, err := begun.ExecContext(d.running, "UPDATE leader SET number = $1 WHERE epoch = $2 AND number = $3", number, mine.epoch, mine.number)
	if err != nil {
		return broke(err)
	}
	if n, err := result.RowsAffected(); err != nil {
		return broke(err)
	} else if n == 0 {
		// No row matched. The row shows whether another server leads, an earlier attempt was
		// committed, or the database was reset.
		var now leadership
		if err := begun.QueryRowContext(d.running, "SELECT epoch, number FROM leader").Scan(&now.epoch, &now.number); err != nil {
			return broke(err)
		}
		switch {
		case now.epoch > mine.epoch:
			return ErrTaken
		case now.epoch == mine.epoch && now.number == number && *sent:
			return errCommitted
		default:
			return errSetBack
		}
	}
	for i, w := range writes {
		if results[i] = w.do(&Tx{tx: begun, running: d.running}); isLost(results[i]) || isRefusal(results[i]) {
			return results[i]
		}
	}
	// From here on, a lost connection leaves the result unknown.
	*sent = true
	if err := begun.Commit(); err != nil && !isRefusal(err) { // the commit also fails if the connection broke before
		return broke(err)
	} else if err != nil {
		*sent = false
		return err
	}
	return nil
}

// again reports, after a pause, whether to retry a read that was first tried this long ago.
func (d *postgresDB) again(ctx context.Context, since time.Duration, err error) bool {
	return isLost(err) && since < readWithin && backoff.Sleep(ctx, 50*time.Millisecond) == nil
}

func (d *postgresDB) stalls() string {
	text := "PostgreSQL has stored nothing for 4 s: it is unreachable or doesn't respond; writes wait"
	if why := d.last.Load(); why != nil {
		text += ": " + (*why).Error()
	}
	return text
}

func (*postgresDB) damaged(err error) error {
	return fmt.Errorf("PostgreSQL's files are damaged: stop the servers, see PostgreSQL's log, and restore the database from its backup: %w", err)
}

// check returns why the database can't be written, or nil.
func (d *postgresDB) check(write func() error) error {
	err := write()
	if code := runtime.CodeOf(err); err == nil || code == runtime.CodeStorageFull || code == runtime.CodeClusterUnavailable {
		return err
	}
	return fmt.Errorf("the database is not writable: see PostgreSQL's log: %w", err)
}

// giveUp ends the transactions that wait for PostgreSQL. Their writes return errClosed.
func (d *postgresDB) giveUp() { d.stop() }

func (d *postgresDB) close() error {
	d.stop()
	return errors.Join(d.reads.Close(), d.writes.Close())
}

// Secret returns the secret of that name that servers share. If there is none, it stores fresh.
func (d *DB) Secret(ctx context.Context, name string, fresh []byte) (value []byte, err error) {
	const doing = "share a secret"
	if _, err := d.reads.ExecContext(ctx, "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING", name, fresh); err != nil {
		return nil, Wrap(err, doing)
	}
	err = d.QueryRow(ctx, "SELECT value FROM secrets WHERE name = $1", name).Scan(&value)
	return value, Wrap(err, doing)
}
