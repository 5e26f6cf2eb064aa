package store

import (
	"database/sql"
	"embed"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*/*.sql
var migrations embed.FS

// migrator returns the provider that brings a database's schema up to date.
func migrator(dialect goose.Dialect, db *sql.DB, options ...goose.ProviderOption) (*goose.Provider, error) {
	directory := map[goose.Dialect]string{goose.DialectSQLite3: "migrations/sqlite", goose.DialectPostgres: "migrations/postgres"}[dialect]
	files, err := fs.Sub(migrations, directory)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(dialect, db, files, options...)
}
