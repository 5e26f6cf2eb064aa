package store

import (
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
const stateDiskFull = "53100"

// hasState reports whether err is an error of PostgreSQL's with one of some states.
func hasState(err error, states ...string) bool {
	var p *pgconn.PgError
	return errors.As(err, &p) && slices.Contains(states, p.Code)
}

// isOf reports whether PostgreSQL refused a statement. It undoes the whole transaction then.
func isOf(err error) bool {
	var p *pgconn.PgError
	return errors.As(err, &p)
}

// errBroke says that a transaction couldn't be begun or committed, whatever the driver calls it.
var errBroke = errors.New("the connection to PostgreSQL broke")

// broke returns an error of a transaction's beginning or end. PostgreSQL's own stays as it is.
func broke(err error) error {
	if err == nil || isOf(err) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return err
	}
	return fmt.Errorf("%w: %w", errBroke, err)
}

// isLost reports whether PostgreSQL couldn't be reached, or undid a transaction that it takes
// another time.
func isLost(err error) bool {
	var p *pgconn.PgError
	if errors.As(err, &p) {
		return strings.HasPrefix(p.Code, "08") || slices.Contains([]string{
			"57P01", "57P02", "57P03", // it ends or starts
			"53300",          // it has too many connections
			"25006",          // it follows another one
			"25P03",          // the transaction stood still
			"40001", "40P01", // two transactions were in each other's way
		}, p.Code)
	}
	var network net.Error
	return errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		slices.ContainsFunc([]error{driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, sql.ErrConnDone, net.ErrClosed, pgconn.ErrConnClosed, errBroke}, func(lost error) bool { return errors.Is(err, lost) })
}
