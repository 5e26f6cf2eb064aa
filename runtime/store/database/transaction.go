package database

import (
	"context"
	"database/sql"
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
	rows, err := t.tx.QueryContext(t.running, text, args...) //nolint:rowserrcheck,sqlclosecheck // eachOf does
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
