package database

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*/*.sql
var migrations embed.FS

func migrator(dialect goose.Dialect, db *sql.DB, options ...goose.ProviderOption) (*goose.Provider, error) {
	directory := map[goose.Dialect]string{goose.DialectSQLite3: "migrations/sqlite", goose.DialectPostgres: "migrations/postgres"}[dialect]
	files, err := fs.Sub(migrations, directory)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(dialect, db, files, options...)
}

// Names and queries with which recognise reads a database.
const (
	sqliteVersion   = "SELECT count(*) FROM sqlite_master WHERE name = '" + versionTable + "'"
	sqliteTables    = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
	postgresTables  = `SELECT relname FROM pg_class c WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e') ORDER BY relname`
	versionTable    = "goose_db_version"
	readVersion     = "SELECT coalesce(max(version_id), 0) FROM " + versionTable
	postgresVersion = "SELECT to_regclass('" + versionTable + "') IS NOT NULL" // it may be in another schema of the search path
)

// known reports whether a database that has these tables and this version of its schema is fresh or of
// Rockpool. It returns an error if the database is another program's, or a newer Rockpool's.
func known(tables []string, version, newest int64) error {
	fresh := version == 0 && !slices.ContainsFunc(tables, func(name string) bool { return name != versionTable })
	switch {
	case !fresh && !slices.Contains(tables, "spent_keys"): // the first migration creates it
		return fmt.Errorf("the database is another program's (its tables: %s): Rockpool changes nothing there; use an empty database", shorten(tables))
	case version > newest:
		return fmt.Errorf("a newer Rockpool wrote the database: its schema has version %d, and this server knows versions up to %d; start the newer Rockpool, or restore the backup from before the upgrade", version, newest)
	}
	return nil
}

func shorten(names []string) string {
	if len(names) > 5 {
		names = append(names[:5:5], "…")
	}
	return strings.Join(names, ", ")
}

func newestOf(provider *goose.Provider) int64 {
	sources := provider.ListSources()
	return sources[len(sources)-1].Version
}

// recognise returns an error if the database is another program's or a newer Rockpool's. It changes
// nothing there. Another server may be creating the tables: each version was committed with its tables, so the
// tables that are listed later include those of the version.
func recognise(ctx context.Context, db *sql.DB, dialect goose.Dialect, newest int64) (version int64, err error) {
	versionExists, listTables := sqliteVersion, sqliteTables
	if dialect == goose.DialectPostgres {
		versionExists, listTables = postgresVersion, postgresTables
	}
	var versioned bool
	err = db.QueryRowContext(ctx, versionExists).Scan(&versioned)
	if err == nil && versioned {
		err = db.QueryRowContext(ctx, readVersion).Scan(&version)
	}
	if err != nil {
		return 0, err
	}
	var tables []string
	rows, err := db.QueryContext(ctx, listTables)
	err = eachOf(rows, err, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		tables = append(tables, name)
		return err
	})
	if err != nil {
		return 0, err
	}
	return version, known(tables, version, newest)
}

// checkWithin bounds the check of a file at the start. A later read finds the damage that only a
// longer check would find.
const checkWithin = 3 * time.Second

// quickCheck returns an error if the file is damaged, as far as SQLite finds out within checkWithin.
func quickCheck(ctx context.Context, db *sql.DB) error {
	within, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	var result string
	err := db.QueryRowContext(within, "PRAGMA quick_check(1)").Scan(&result)
	switch {
	case err != nil && within.Err() != nil:
		return context.Cause(ctx)
	case err == nil && result != "ok":
		return fmt.Errorf("%w: %s", errDamaged, result)
	}
	return err
}

var errDamaged = errors.New("the check of the database failed")

func isDamage(err error) bool {
	return hasCode(err, sqliteCorrupt, sqliteNoDatabase) || hasState(err, stateDataCorrupted, stateIndexCorrupted) || errors.Is(err, errDamaged)
}

// note remembers an error that says that the database is damaged, and returns it. See Check.
func (d *DB) note(err error) error {
	if isDamage(err) {
		d.damage.CompareAndSwap(nil, &err)
	}
	return err
}
