package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	sqlite "modernc.org/sqlite"
)

// Result codes of SQLite (https://sqlite.org/rescode.html).
const (
	sqliteBusy       = 5
	sqliteNoMemory   = 7
	sqliteReadOnly   = 8
	sqliteInterrupt  = 9
	sqliteIO         = 10
	sqliteCorrupt    = 11
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteNoDatabase = 26
)

func hasCode(err error, codes ...int) bool {
	q, ok := errors.AsType[*sqlite.Error](err)
	return ok && slices.Contains(codes, q.Code()&0xff)
}

// is reports whether an error of a type is in err's chain.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Error codes of PostgreSQL (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	stateDiskFull = "53100"
	stateReadOnly = "25006"
	stateNoText   = "22021" // text with NUL

	stateDataCorrupted  = "XX001"
	stateIndexCorrupted = "XX002"
)

func hasState(err error, states ...string) bool {
	p, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(states, p.Code)
}

// HasNUL reports whether PostgreSQL refused a parameter because it contains NUL, which no text there does.
func HasNUL(err error) bool { return hasState(err, stateNoText) }

// isRefusal reports whether PostgreSQL refused a statement, or rolled back at a commit. After that the
// transaction is void.
func isRefusal(err error) bool {
	return !isLost(err) && is[*pgconn.PgError](err) || errors.Is(err, pgx.ErrTxCommitRollback)
}

// errBroke marks errors after which the same write may be tried again.
var errBroke = errors.New("PostgreSQL is unreachable")

// broke marks an error of the beginning or the end of a transaction, unless PostgreSQL refused it.
// The connection is unusable, whatever the driver's error says.
func broke(err error) error {
	if isRefusal(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errBroke, err)
}

// isLost reports whether PostgreSQL was unreachable, or refused something that it would accept later.
func isLost(err error) bool {
	if err == nil {
		return false
	}
	if p, ok := errors.AsType[*pgconn.PgError](err); ok {
		return p.SeverityUnlocalized == "FATAL" || p.SeverityUnlocalized == "PANIC" || // which ends the connection
			slices.Contains([]string{
				stateReadOnly,
				"25P03", "25P04", // the transaction was idle, or took too long
				"40001", "40P01", // serialization failure, deadlock
				"55P03",                   // lock timeout
				"53000", "53200", "53400", // out of resources or memory
			}, p.Code) ||
			strings.HasPrefix(p.Code, "08") || strings.HasPrefix(p.Code, "57") || strings.HasPrefix(p.Code, "58") // connection failure, operator intervention, system error
	}
	if errors.Is(err, errBroke) {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return is[*net.OpError](err) || is[*pgconn.ConnectError](err) || pgconn.SafeToRetry(err) ||
		slices.ContainsFunc([]error{driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, sql.ErrConnDone, net.ErrClosed, pgconn.ErrConnClosed}, func(lost error) bool { return errors.Is(err, lost) })
}
