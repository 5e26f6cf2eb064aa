package database

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rockpool/rockpool/test/postgrestest"
	"github.com/rockpool/rockpool/test/wait"
)

// raw runs statements in an SQLite database, without the store.
func raw(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(statement, err)
		}
	}
}

// closed creates a store's database, and closes it.
func closed(t *testing.T, path string) {
	t.Helper()
	d, err := Open(t.Context(), path)
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that Open refuses the database with all words, and leaves the file and its mode as they are.
func refused(t *testing.T, path string, words ...string) {
	t.Helper()
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), path)
	if err == nil {
		_ = d.Close()
		t.Fatal("the database is accepted")
	}
	for _, word := range append(words, path) {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error lacks %q: %v", word, err)
		}
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Error("the file was changed", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

func TestForeignDatabaseIsRefused(t *testing.T) {
	for name, statements := range map[string][]string{
		"tables":                            {"CREATE TABLE moz_places (id INTEGER)", "CREATE TABLE moz_hosts (id INTEGER)"},
		"tables with our names":             {"CREATE TABLE executions (id INTEGER)"},
		"another program of goose":          {"CREATE TABLE goose_db_version (id INTEGER, version_id INTEGER, is_applied INTEGER, tstamp TEXT)", "CREATE TABLE users (id INTEGER)"},
		"only another program's migrations": {"CREATE TABLE goose_db_version (id INTEGER, version_id INTEGER, is_applied INTEGER, tstamp TEXT)", "INSERT INTO goose_db_version VALUES (1, 3, 1, '')"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			raw(t, path, statements...)
			refused(t, path, "another program's", strings.Fields(statements[0])[2])
		})
	}
	t.Run("not SQLite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(path, []byte(strings.Repeat("a letter to a friend\n", 500)), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, path, "isn't a database of SQLite")
	})
}

func TestNewerDatabaseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	closed(t, path)
	raw(t, path, "PRAGMA wal_checkpoint(TRUNCATE)", "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
	refused(t, path, "newer Rockpool", "9999", "restore the backup")
}

// An empty file, and one whose first migration was interrupted, are fresh.
func TestEmptyDatabaseIsAccepted(t *testing.T) {
	for name, statements := range map[string][]string{
		"empty":    nil,
		"versions": {"CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL, is_applied INTEGER NOT NULL, tstamp TIMESTAMP DEFAULT (datetime('now')))", "INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			raw(t, path, statements...)
			d := open(t, path)
			if !d.Fresh() {
				t.Error("it isn't fresh")
			}
		})
	}
}

// spoil overwrites the pages of a table and its indexes in a closed database.
func spoil(t *testing.T, path, table string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var size, page int64
	if _, err := db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow("SELECT page_size, (SELECT rootpage FROM sqlite_master WHERE name = ?) FROM pragma_page_size", table).Scan(&size, &page); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte(strings.Repeat("\xde\xad", int(size/2))), (page-1)*size); err != nil {
		t.Fatal(err)
	}
}

// TestStartFindsDamage overwrites a page of each table.
func TestStartFindsDamage(t *testing.T) {
	for _, table := range []string{"spent_keys", "executions", "audit", "executions_runner"} {
		t.Run(table, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			closed(t, path)
			spoil(t, path, table)
			refused(t, path, "damaged", "restore it from a backup", ".recover")
		})
	}
}

// TestDamageIsReported damages a table of an open database. The check itself doesn't use this table.
func TestDamageIsReported(t *testing.T) {
	for name, use := range map[string]struct {
		table string
		do    func(*DB) error
	}{
		"a write": {"runners", func(d *DB) error { return put(t, d, "r", nil) }},
		"a row": {"draining", func(d *DB) error {
			var since int64
			return Wrap(d.QueryRow(t.Context(), "SELECT since FROM draining").Scan(&since), "read")
		}},
		"rows": {"environments", func(d *DB) error {
			return d.Each(t.Context(), "read", func(func(...any) error) error { return nil }, "SELECT id, value FROM environments")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			d := open(t, path)
			d.wantWell(t)
			spoil(t, path, use.table)
			d.reads.SetMaxIdleConns(0) // their caches still have the sound page
			if err := use.do(d); err == nil {
				t.Fatal("the damaged table can be used")
			} else if !strings.Contains(err.Error(), "damaged") {
				t.Errorf("the error is %v, want one about damage", err)
			}
			d.wantBroken(t, "is damaged", path, "restore the database from its backup", ".recover")
		})
	}
}

// TestOthersCannotReadTheDatabase checks the modes of new files, and of those that were readable.
func TestOthersCannotReadTheDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	private := func(when string) {
		t.Helper()
		files, err := filepath.Glob(path + "*")
		if err != nil || len(files) < 4 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %s has mode %v, %v", when, file, info.Mode().Perm(), err)
			}
		}
	}
	d := open(t, path)
	if err := put(t, d, "r", nil); err != nil {
		t.Fatal(err)
	}
	private("new")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + "-wal", path + "-shm"} {
		made, err := os.OpenFile(file, os.O_CREATE, 0o644)
		if err == nil {
			err = made.Chmod(0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = made.Close()
	}
	open(t, path)
	private("readable before")
}

func TestForeignAndNewerPostgreSQLAreRefused(t *testing.T) {
	p := postgrestest.Start(t)
	conn, err := pgx.Connect(t.Context(), p.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(url string, words ...string) {
		t.Helper()
		d, err := OpenShared(t.Context(), url)
		if err == nil {
			_ = d.Close()
		}
		_, examined := Examine(t.Context(), url)
		for _, word := range words {
			if !strings.Contains(fmt.Sprint(err), word) || !strings.Contains(fmt.Sprint(examined), word) {
				t.Errorf("the errors lack %q: %v; the doctor's: %v", word, err, examined)
			}
		}
	}
	exec("CREATE SCHEMA shop; CREATE TABLE shop.orders (id int)")
	refused(p.URL+"?search_path=shop", "another program's", "orders")
	var tables int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = 'shop'::regnamespace").Scan(&tables); err != nil || tables != 1 {
		t.Errorf("the foreign schema was changed: %d, %v", tables, err)
	}
	exec("CREATE SCHEMA ours")
	d := lead(t, p.URL+"?search_path=ours")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Examine(t.Context(), p.URL+"?search_path=ours"); err != nil {
		t.Error(err)
	}
	refused(p.URL+"?search_path=ours", "<nil>") // it is accepted, twice
	exec("INSERT INTO ours.goose_db_version (version_id, is_applied) VALUES (9999, true)")
	refused(p.URL+"?search_path=ours", "newer Rockpool", "9999")
}

// TestServersStartTogetherOnAnEmptyDatabase opens a database while another server creates its tables.
func TestServersStartTogetherOnAnEmptyDatabase(t *testing.T) {
	p := postgrestest.Start(t)
	conn, err := pgx.Connect(t.Context(), p.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	exec := func(statements string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statements); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		schema := fmt.Sprintf("s%d", round)
		exec("CREATE SCHEMA " + schema)
		var servers sync.WaitGroup
		for range 4 {
			servers.Go(func() {
				d, err := OpenShared(t.Context(), p.URL+"?search_path="+schema)
				if err == nil {
					err = d.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		servers.Wait()
	}
	// The first migration is committed after the other server has begun to examine the database.
	exec(`CREATE SCHEMA slow; SET search_path = slow; CREATE TABLE goose_db_version (version_id bigint); INSERT INTO goose_db_version VALUES (0)`)
	exec(`BEGIN; LOCK goose_db_version; INSERT INTO goose_db_version VALUES (1); CREATE TABLE spent_keys (key text)`)
	examined := make(chan error, 1)
	go func() {
		_, err := Examine(t.Context(), p.URL+"?search_path=slow")
		examined <- err
	}()
	wait.For(t, "it waits for the migration", func() bool {
		var waits bool
		err := conn.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted").Scan(&waits)
		return err != nil || waits || len(examined) > 0
	})
	exec("COMMIT")
	if err := <-examined; err != nil {
		t.Error(err)
	}
}

// TestDamagedPostgreSQLIsReported overwrites a table's page while PostgreSQL is down.
func TestDamagedPostgreSQLIsReported(t *testing.T) {
	p := postgrestest.Start(t)
	d := lead(t, p.URL)
	defer d.Close()
	if err := put(t, d, "r", nil); err != nil {
		t.Fatal(err)
	}
	file, err := p.Query("CHECKPOINT; SELECT current_setting('data_directory') || '/' || pg_relation_filepath('runners')")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(file)
	p.Kill()
	if err := os.WriteFile(lines[len(lines)-1], []byte(strings.Repeat("\xde\xad", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := put(t, d, "r2", nil); err == nil {
		t.Fatal("the damaged table can be used")
	}
	d.wantBroken(t, "PostgreSQL's files are damaged", "restore the database from its backup")
}
