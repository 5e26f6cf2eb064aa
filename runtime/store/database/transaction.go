package database

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// A Tx is a transaction of the writer. Exec keeps the compiled statement for later transactions,
// because compiling takes as long as a short statement. Use [Tx.ExecOnce] for a varying text.
type Tx struct {
	tx         *sql.Tx
	statements *statements // nil if the driver caches them
	running    context.Context
}

// Exec executes a statement.
func (t *Tx) Exec(text string, args ...any) (sql.Result, error) {
	if t.statements == nil {
		return t.tx.ExecContext(t.running, text, args...)
	}
	if statement := t.statements.known[text]; statement != nil {
		return t.tx.Stmt(statement).Exec(args...) //nolint:sqlclosecheck // the end of the transaction closes it
	}
	result, err := t.tx.Exec(text, args...)
	if err == nil {
		t.statements.wanted = append(t.statements.wanted, text)
	}
	return result, err
}

// ExecOnce executes a statement without keeping it compiled.
func (t *Tx) ExecOnce(text string, args ...any) (sql.Result, error) {
	return t.tx.ExecContext(t.running, text, args...)
}

// QueryRow reads a row.
func (t *Tx) QueryRow(text string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(t.running, text, args...)
}

// Each calls each for every row of a result, until each returns an error.
func (t *Tx) Each(each func(scan func(into ...any) error) error, text string, args ...any) error {
	rows, err := t.tx.QueryContext(t.running, text, args...)
	return eachOf(rows, err, each)
}

type statements struct {
	known  map[string]*sql.Stmt // by text
	wanted []string             // executed, not compiled yet
}

// prepare compiles the wanted statements. Call it outside a transaction, which would hold the only
// connection.
func (s *statements) prepare(db *sql.DB) error {
	for _, text := range s.wanted {
		if s.known[text] != nil {
			continue
		}
		statement, err := db.Prepare(text) //nolint:sqlclosecheck // the database does
		if err != nil {
			return err
		}
		if s.known == nil {
			s.known = map[string]*sql.Stmt{}
		}
		s.known[text] = statement
	}
	s.wanted = s.wanted[:0]
	return nil
}

// A Row is a row that is read when it is scanned.
type Row func(into ...any) error

// Scan reads the row.
func (r Row) Scan(into ...any) error { return r(into...) }

// QueryRow reads a row. Wrap its error.
func (d *DB) QueryRow(ctx context.Context, text string, args ...any) Row {
	return func(into ...any) error {
		return d.retry(ctx, func() error { return d.reads.QueryRowContext(ctx, text, args...).Scan(into...) })
	}
}

// ErrStop ends the calls of an each, without an error.
var ErrStop = errors.New("no more rows are needed")

// Each calls each for every row of a result, until each returns an error. It returns errors wrapped.
func (d *DB) Each(ctx context.Context, doing string, each func(scan func(into ...any) error) error, text string, args ...any) error {
	var rows *sql.Rows
	err := d.retry(ctx, func() (err error) {
		rows, err = d.reads.QueryContext(ctx, text, args...) //nolint:rowserrcheck,sqlclosecheck // eachOf does
		return err
	})
	return Wrap(d.note(eachOf(rows, err, each)), doing)
}

// eachOf calls each for the rows of a query that returned err, and closes them.
func eachOf(rows *sql.Rows, err error, each func(scan func(into ...any) error) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); errors.Is(err, ErrStop) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return rows.Err()
}

// Read calls read, which reads from the database. It repeats the call after a lost connection, and ends it if
// PostgreSQL doesn't respond. It returns errors wrapped.
func (d *DB) Read(ctx context.Context, doing string, read func(ctx context.Context, from *sql.DB) error) error {
	within, cancel := context.WithTimeout(ctx, 2*readWithin)
	defer cancel()
	err := d.retry(within, func() error { return read(within, d.reads) })
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = broke(err)
	}
	return Wrap(err, doing)
}

// retry repeats a read while its error is a lost connection and again allows it.
func (d *DB) retry(ctx context.Context, read func() error) error {
	for began := time.Now(); ; {
		err := read()
		if err == nil || d.again == nil || !isLost(err) {
			return d.note(err)
		}
		if !d.again(ctx, time.Since(began), err) {
			return broke(err)
		}
	}
}
