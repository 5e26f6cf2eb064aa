package store

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"io/fs"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/rockpool/rockpool/runtime"
)

//go:embed migrations/*/*.sql
var migrations embed.FS

// migrator returns what brings a database's schema up to date.
func migrator(dialect goose.Dialect, db *sql.DB, options ...goose.ProviderOption) (*goose.Provider, error) {
	of := map[goose.Dialect]struct {
		directory string
		filled    int64 // the version in which execution_search has all that was stored before it
	}{
		goose.DialectSQLite3:  {"migrations/sqlite", 10},
		goose.DialectPostgres: {"migrations/postgres", 5},
	}[dialect]
	files, err := fs.Sub(migrations, of.directory)
	if err != nil {
		return nil, err
	}
	filling := goose.NewGoMigration(of.filled, &goose.GoFunc{RunTx: fillSearch}, nil)
	return goose.NewProvider(dialect, db, files, append(options, goose.WithGoMigrations(filling))...)
}

// fillSearch adds all executions to execution_search. One that can't be read isn't found by searching.
func fillSearch(ctx context.Context, tx *sql.Tx) error {
	for after := runtime.ExecutionID(""); ; {
		found, last, err := readSome(ctx, tx, after)
		if err != nil || last == "" {
			return err
		}
		var rows []string
		var args []any
		for _, x := range found {
			t := termsOf(x)
			row := []any{x.ID, x.EnvironmentID, string(x.Tenant), t.queued, string(t.outcome), t.passed, t.labels, t.command}
			rows = append(rows, "("+parameters(len(args)+1, len(row))+")")
			args = append(args, row...)
		}
		if len(rows) > 0 {
			_, err := tx.ExecContext(ctx, "INSERT INTO execution_search (execution, environment, tenant, queued, outcome, passed, labels, command) VALUES "+strings.Join(rows, ", "), args...)
			if err != nil {
				return err
			}
		}
		after = last
	}
}

// readSome reads the executions after an id, at most 100, and the last one's id; "": there are no more.
func readSome(ctx context.Context, tx *sql.Tx, after runtime.ExecutionID) (found []runtime.Execution, last runtime.ExecutionID, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT id, value FROM executions WHERE id > $1 ORDER BY id LIMIT 100", after)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for rows.Next() {
		var value []byte
		var x runtime.Execution
		if err := rows.Scan(&last, &value); err != nil {
			return nil, "", err
		}
		if json.Unmarshal(value, &x) == nil && x.ID == last {
			found = append(found, x)
		}
	}
	return found, last, rows.Err()
}
