package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

const (
	postgresReads = 16 // connections, at most

	lostAfter  = 10 * time.Second // a connection that is told nothing for so long is lost
	readWithin = 10 * time.Second // for so long a read is tried again while PostgreSQL can't be reached
)

// A postgresDB is a database that several servers have open, of which one writes: the last that
// led. The table leader has that server's epoch. Each transaction locks this row, so that no other
// server can lead before it has ended, and writes its own number there: that tells whether it was
// committed where the connection broke before anything was heard of that.
//
// While PostgreSQL can't be reached, writes wait, as they do for a disk that stalls.
type postgresDB struct {
	reads, writes *sql.DB
	epoch         atomic.Int64 // 0: this server doesn't lead
	number        int64        // of the last transaction; the writer's
	taken         func()       // another server leads

	running context.Context // of transactions
	stop    context.CancelFunc
}

// errFollows says that this store doesn't lead.
var errFollows error = runtime.Errorf(runtime.CodeClusterUnavailable, "this server doesn't lead")

// errTaken says that another store leads now.
var errTaken error = runtime.Errorf(runtime.CodeClusterUnavailable, "another server leads now, with the same database")

// errCommitted says that an earlier attempt was committed.
var errCommitted = errors.New("it was committed")

// OpenShared opens a PostgreSQL database, and brings its schema up to date. The URL is as libpq
// takes it; what it leaves out comes from PGPASSWORD and the like, and from ~/.pgpass. It may be
// open elsewhere: see Lead.
func OpenShared(ctx context.Context, url string) (*Store, error) {
	config, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "rockpool"
	// A server whose machine vanished, or that is stopped by a signal, keeps nobody from leading.
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "2000"
	config.DialFunc = (&net.Dialer{Timeout: lostAfter, Control: loseConnections}).DialContext
	d := &postgresDB{reads: stdlib.OpenDB(*config), writes: stdlib.OpenDB(*config)}
	d.running, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	d.writes.SetMaxOpenConns(1)
	d.reads.SetMaxOpenConns(postgresReads)
	d.reads.SetMaxIdleConns(postgresReads)
	if err := d.migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open the database at %s: %w", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), err), d.close())
	}
	s := &Store{db: d, reads: reads{d.reads, d.again}, shared: true, taken: make(chan struct{})}
	d.taken = sync.OnceFunc(func() { close(s.taken) })
	return s.start(), nil
}

// ParseURL checks a database's URL. The error has no password.
func ParseURL(url string) (*pgx.ConnConfig, error) { return pgx.ParseConfig(url) }

// Examine returns which PostgreSQL a URL leads to, and changes nothing there. The error says why none
// can be used.
func Examine(ctx context.Context, url string) (version string, err error) {
	config, err := ParseURL(url)
	if err != nil {
		return "", err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var creates bool
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version'), has_schema_privilege(current_schema(), 'CREATE')").Scan(&version, &creates)
	if err == nil && !creates {
		err = fmt.Errorf("user %s may not make tables there", config.User)
	}
	return version, err
}

// loseConnections has the kernel give up a connection over which nothing was heard of what was
// sent.
func loseConnections(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(lostAfter.Milliseconds())) // a Unix socket has none
	})
}

func (d *postgresDB) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations/postgres")
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60)) // other servers start, too
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, d.reads, files, goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

func (d *postgresDB) lead(ctx context.Context) error {
	var epoch int64
	// It waits for the transaction of the server that led.
	if err := d.reads.QueryRowContext(ctx, "UPDATE leader SET epoch = epoch + 1, number = 0 RETURNING epoch").Scan(&epoch); err != nil {
		return err
	}
	d.epoch.Store(epoch)
	return nil
}

// transact is undone where a statement fails. Where the connection is lost it does it again.
func (d *postgresDB) transact(writes []write) (results []error, undone bool) {
	results = make([]error, len(writes))
	pause := backoff.Backoff{First: 10 * time.Millisecond, Last: 200 * time.Millisecond}
	for {
		err := d.attempt(d.number+1, writes, results)
		if isLost(err) && d.running.Err() == nil && pause.Wait(d.running) == nil {
			continue
		}
		if err == nil || errors.Is(err, errCommitted) { // then results are that attempt's
			d.number++
			return results, false
		}
		if errors.Is(err, errTaken) {
			d.taken()
		}
		if d.running.Err() != nil {
			err = errClosed
		}
		for i := range results {
			results[i] = err
		}
		return results, isOf(err) || errors.Is(err, pgx.ErrTxCommitRollback)
	}
}

// attempt does writes in one transaction, unless that was committed already.
func (d *postgresDB) attempt(number int64, writes []write, results []error) error {
	epoch := d.epoch.Load()
	if epoch == 0 {
		return errFollows
	}
	begun, err := d.writes.BeginTx(d.running, nil)
	if err != nil {
		return broke(err)
	}
	defer begun.Rollback() // does nothing after a commit
	result, err := begun.Exec("UPDATE leader SET number = $1 WHERE epoch = $2 AND number = $3", number, epoch, number-1)
	if err != nil {
		return broke(err)
	}
	if n, err := result.RowsAffected(); err != nil {
		return broke(err)
	} else if n == 0 {
		var leads int64
		if err := begun.QueryRow("SELECT epoch FROM leader").Scan(&leads); err != nil {
			return broke(err)
		}
		if leads != epoch {
			return errTaken
		}
		return errCommitted
	}
	for i, w := range writes {
		if results[i] = w.do(&transaction{tx: begun}); isLost(results[i]) || isOf(results[i]) {
			return results[i]
		}
	}
	return broke(begun.Commit()) // which fails where the connection broke before it
}

// again says whether to read again.
func (d *postgresDB) again(ctx context.Context, try int, err error) bool {
	const pause = 50 * time.Millisecond
	return isLost(err) && time.Duration(try)*pause < readWithin && backoff.Sleep(ctx, pause) == nil
}

func (d *postgresDB) check(write func() error) error {
	err := write()
	if err == nil || runtime.CodeOf(err) == runtime.CodeStorageFull || errors.Is(err, errTaken) {
		return err
	}
	return fmt.Errorf("the database can't be written: PostgreSQL's log says more: %w", err)
}

func (d *postgresDB) giveUp() { d.stop() }

func (d *postgresDB) close() error {
	d.stop()
	return errors.Join(d.reads.Close(), d.writes.Close())
}

// Secret returns the secret of that name that servers share, and makes it of size random bytes
// where there is none.
func (s *Store) Secret(ctx context.Context, name string, fresh []byte) (value []byte, err error) {
	const doing = "share a secret"
	if _, err := s.reads.db.ExecContext(ctx, "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING", name, fresh); err != nil {
		return nil, typed(err, doing)
	}
	err = s.reads.QueryRowContext(ctx, "SELECT value FROM secrets WHERE name = $1", name).Scan(&value)
	return value, typed(err, doing)
}
