package store

import (
	"context"
	"database/sql"
)

// A transaction is a transaction of the writer. Exec keeps the compiled statement for later transactions,
// because compiling takes as long as a short statement. Use [transaction.ExecOnce] for a varying text.
type transaction struct {
	tx         *sql.Tx
	statements *statements // nil: the driver caches them
	running    context.Context
}

// Exec executes a statement.
func (t *transaction) Exec(text string, args ...any) (sql.Result, error) {
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
func (t *transaction) ExecOnce(text string, args ...any) (sql.Result, error) {
	return t.tx.ExecContext(t.running, text, args...)
}

// QueryRow reads a row.
func (t *transaction) QueryRow(text string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(t.running, text, args...)
}

// Query reads rows. The caller closes them.
func (t *transaction) Query(text string, args ...any) (*sql.Rows, error) {
	return t.tx.QueryContext(t.running, text, args...)
}

// statements are the compiled statements of the writer.
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
