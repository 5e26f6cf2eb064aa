package database

import (
	"context"
	"database/sql"
	"time"
)

// Rows are the rows of a result. The caller closes them.
type Rows struct {
	*sql.Rows
	note func(error) error // see DB.note
}

// Err returns the error that ended the rows.
func (r *Rows) Err() error { return r.note(r.Rows.Err()) }

// A Row is a row that is read when it is scanned.
type Row func(into ...any) error

// Scan reads the row.
func (r Row) Scan(into ...any) error { return r(into...) }

// Query reads rows. Wrap their errors.
func (d *DB) Query(ctx context.Context, text string, args ...any) (*Rows, error) {
	var rows *sql.Rows
	err := d.retry(ctx, func() (err error) {
		rows, err = d.reads.QueryContext(ctx, text, args...) //nolint:rowserrcheck,sqlclosecheck // the caller does
		return err
	})
	return &Rows{rows, d.note}, err
}

// QueryRow reads a row. Wrap its error.
func (d *DB) QueryRow(ctx context.Context, text string, args ...any) Row {
	return func(into ...any) error {
		return d.retry(ctx, func() error { return d.reads.QueryRowContext(ctx, text, args...).Scan(into...) })
	}
}

// Each calls each for every row of a result, until each returns an error. It returns errors wrapped.
func (d *DB) Each(ctx context.Context, doing string, each func(scan func(into ...any) error) error, text string, args ...any) error {
	rows, err := d.Query(ctx, text, args...)
	if err != nil {
		return Wrap(err, doing)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return Wrap(err, doing)
		}
	}
	return Wrap(rows.Err(), doing)
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
