package store

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

// SQLite's result codes (https://sqlite.org/rescode.html).
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

// hasCode reports whether err is an error of SQLite's with one of codes.
func hasCode(err error, codes ...int) bool {
	var q *sqlite.Error
	return errors.As(err, &q) && slices.Contains(codes, q.Code()&0xff)
}

// PostgreSQL's (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	stateDiskFull = "53100"
	stateReadOnly = "25006"
	stateNoText   = "22021" // NUL
)

// hasState reports whether err is an error of PostgreSQL's with one of some states.
func hasState(err error, states ...string) bool {
	var p *pgconn.PgError
	return errors.As(err, &p) && slices.Contains(states, p.Code)
}

// isRefusal reports whether an error is PostgreSQL's own answer to a statement, or to a commit that it
// undid. After one, the transaction is void.
func isRefusal(err error) bool {
	var p *pgconn.PgError
	return !isLost(err) && errors.As(err, &p) || errors.Is(err, pgx.ErrTxCommitRollback)
}

// errBroke marks errors after which the same may be tried again.
var errBroke = errors.New("PostgreSQL can't be reached")

// broke marks an error of a transaction's beginning or end, unless PostgreSQL refused it: whatever the
// driver calls it, the connection is of no use.
func broke(err error) error {
	if isRefusal(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errBroke, err)
}

// isLost reports whether PostgreSQL couldn't be reached, or refused what it takes at another time.
func isLost(err error) bool {
	if err == nil {
		return false
	}
	var p *pgconn.PgError
	if errors.As(err, &p) {
		return p.SeverityUnlocalized == "FATAL" || p.SeverityUnlocalized == "PANIC" || // the connection ended with it
			slices.Contains([]string{
				stateReadOnly,
				"25P03", "25P04", // the transaction stood still, or took too long
				"40001", "40P01", // two transactions were in each other's way
				"55P03",                   // so long that one gave up
				"53000", "53200", "53400", // it has no memory
			}, p.Code) ||
			strings.HasPrefix(p.Code, "08") || strings.HasPrefix(p.Code, "57") || strings.HasPrefix(p.Code, "58") // it ends, somebody interrupts it, or its machine fails
	}
	if errors.Is(err, errBroke) {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var network *net.OpError
	var connecting *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connecting) || pgconn.SafeToRetry(err) ||
		slices.ContainsFunc([]error{driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, sql.ErrConnDone, net.ErrClosed, pgconn.ErrConnClosed}, func(lost error) bool { return errors.Is(err, lost) })
}
