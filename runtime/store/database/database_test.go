package database

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens an SQLite database until the test's end.
func open(t testing.TB, path string) *DB {
	t.Helper()
	d, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// put stores or replaces a runner's row.
func put(t testing.TB, d *DB, id string, private []byte) error {
	return d.Write(t.Context(), "store a runner", func(tx *Tx) error {
		_, err := tx.Exec("INSERT INTO runners (id, epoch, value, claim, private) VALUES ($1, 0, $2, $2, $3) ON CONFLICT (id) DO UPDATE SET private = excluded.private", id, []byte{}, private)
		return err
	})
}

func TestSecondProcessGetsTheHolderOfTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	open(t, path)
	if d, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v, %v, want the process id %d", d, err, os.Getpid())
	}
}
