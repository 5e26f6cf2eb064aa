package store

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
	postgresReads = 16 // connections, at most

	lostAfter  = 10 * time.Second // a connection is closed where what was sent isn't acknowledged for so long
	readWithin = 10 * time.Second // for so long a read is tried again while PostgreSQL can't be reached
)

// A postgresDB is a database that several servers have open, of which one writes: the last that
// led. The table leader has that server's epoch. Each transaction locks this row, so that no other
// server can lead before it has ended, and writes its own number there. After a connection broke, the
// number tells whether the transaction was committed.
//
// While PostgreSQL can't be reached, writes wait, as they do for a disk that stalls.
type postgresDB struct {
	reads, writes *sql.DB
	led           atomic.Pointer[leadership] // nil: this server doesn't lead
	taken         func()                     // another server leads
	last          atomic.Pointer[error]      // why the writer waits; nil: it doesn't

	running context.Context // of transactions
	stop    context.CancelFunc
}

// A leadership is a server's, from its call of lead on.
type leadership struct {
	epoch  int64
	number int64 // of the last transaction; the writer's
}

// errFollows says that this store doesn't lead.
var errFollows error = runtime.Errorf(runtime.CodeClusterUnavailable, "this server doesn't lead")

// ErrTaken says that another store leads now.
var ErrTaken error = runtime.Errorf(runtime.CodeClusterUnavailable, "another server leads now, with the same database")

// errSetBack says that what was committed isn't there any more.
var errSetBack error = runtime.Errorf(runtime.CodeClusterUnavailable, "the database was set back to an earlier state: this server starts anew from that")

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
	config.RuntimeParams["statement_timeout"], config.RuntimeParams["lock_timeout"] = "0", "0" // the writer waits
	if config.ValidateConnect == nil {
		// Of several hosts the one that isn't a copy.
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = lostAfter
	}
	config.DialFunc = (&net.Dialer{Control: limitUnacknowledged}).DialContext
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

// limitUnacknowledged has the kernel close a connection on which what was sent isn't acknowledged
// within lostAfter.
func limitUnacknowledged(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(lostAfter.Milliseconds())) // a Unix socket has none
	})
}

func (d *postgresDB) migrate(ctx context.Context) error {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60)) // other servers start, too
	if err != nil {
		return err
	}
	provider, err := migrator(goose.DialectPostgres, d.reads, goose.WithSessionLocker(locker))
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
	d.led.Store(&leadership{epoch: epoch})
	return nil
}

// transact undoes all if PostgreSQL refuses a statement. If the connection is lost, it tries the same
// writes again.
func (d *postgresDB) transact(writes []write) (results []error, undone bool) {
	results = make([]error, len(writes))
	led := d.led.Load()
	if led == nil {
		return fill(results, errFollows), false
	}
	sent := false // a commit, of which nothing was heard
	pause := backoff.Backoff{First: 10 * time.Millisecond, Last: 200 * time.Millisecond}
	for {
		err := d.attempt(led, writes, results, &sent)
		if isLost(err) && d.running.Err() == nil {
			d.last.Store(&err)
			if hasState(err, stateReadOnly) { // it was made a copy of another one
				d.writes.SetMaxIdleConns(0)
				d.writes.SetMaxIdleConns(1)
			}
			if pause.Wait(d.running) == nil {
				continue
			}
		}
		d.last.Store(nil)
		switch {
		case err == nil, errors.Is(err, errCommitted): // then results are those of the attempt before
			led.number++
			return results, false
		case d.running.Err() != nil:
			err = errClosed
		case errors.Is(err, ErrTaken), errors.Is(err, errSetBack):
			d.taken()
		}
		return fill(results, err), isRefusal(err)
	}
}

func fill(results []error, err error) []error {
	for i := range results {
		results[i] = err
	}
	return results
}

// attempt does writes in one transaction, unless an earlier attempt was committed. Sent is set once
// this one may be.
func (d *postgresDB) attempt(led *leadership, writes []write, results []error, sent *bool) error {
	begun, err := d.writes.BeginTx(d.running, nil)
	if err != nil {
		return broke(err)
	}
	defer begun.Rollback() // does nothing after a commit
	number := led.number + 1
	result, err := begun.ExecContext(d.running, "UPDATE leader SET number = $1 WHERE epoch = $2 AND number = $3", number, led.epoch, led.number)
	if err != nil {
		return broke(err)
	}
	if n, err := result.RowsAffected(); err != nil {
		return broke(err)
	} else if n == 0 {
		var now leadership
		if err := begun.QueryRowContext(d.running, "SELECT epoch, number FROM leader").Scan(&now.epoch, &now.number); err != nil {
			return broke(err)
		}
		switch {
		case now.epoch > led.epoch:
			return ErrTaken
		case now.epoch == led.epoch && now.number == number && *sent:
			return errCommitted
		default:
			return errSetBack
		}
	}
	for i, w := range writes {
		if results[i] = w.do(&transaction{tx: begun, running: d.running}); isLost(results[i]) || isRefusal(results[i]) {
			return results[i]
		}
	}
	*sent = true
	if err := begun.Commit(); err != nil && !isRefusal(err) { // it fails, too, where the connection broke before
		return broke(err)
	} else if err != nil {
		*sent = false
		return err
	}
	return nil
}

// again says whether to read again what was first tried so long ago.
func (d *postgresDB) again(ctx context.Context, since time.Duration, err error) bool {
	return isLost(err) && since < readWithin && backoff.Sleep(ctx, 50*time.Millisecond) == nil
}

func (d *postgresDB) stalls() string {
	text := "PostgreSQL stored nothing within 4 s: it can't be reached, or stands still; what is to be stored waits"
	if why := d.last.Load(); why != nil {
		text += ": " + (*why).Error()
	}
	return text
}

func (d *postgresDB) check(write func() error) error {
	err := write()
	if code := runtime.CodeOf(err); err == nil || code == runtime.CodeStorageFull || code == runtime.CodeClusterUnavailable {
		return err
	}
	return fmt.Errorf("the database can't be written: PostgreSQL's log says more: %w", err)
}

func (d *postgresDB) giveUp() { d.stop() }

func (d *postgresDB) close() error {
	d.stop()
	return errors.Join(d.reads.Close(), d.writes.Close())
}

// Secret returns the secret of that name that servers share. Where there is none it stores fresh as
// it.
func (s *Store) Secret(ctx context.Context, name string, fresh []byte) (value []byte, err error) {
	const doing = "share a secret"
	if _, err := s.reads.db.ExecContext(ctx, "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING", name, fresh); err != nil {
		return nil, typed(err, doing)
	}
	err = s.reads.QueryRowContext(ctx, "SELECT value FROM secrets WHERE name = $1", name).Scan(&value)
	return value, typed(err, doing)
}
