package database

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// TestFullDiskRefusesOnlyTheWritesThatDoNotFit checks writes that share a transaction: those that
// returned an error aren't stored, and the others are. SQLite abandons a whole transaction if one
// statement doesn't fit.
func TestFullDiskRefusesOnlyTheWritesThatDoNotFit(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "db"))
	var pages int
	if err := d.backend.(*sqliteDB).writes.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if _, err := d.backend.(*sqliteDB).writes.Exec("PRAGMA max_page_count = " + strconv.Itoa(pages+10)); err != nil {
		t.Fatal(err)
	}
	put := func(id, text string) write {
		return write{result: make(chan error, 1), do: func(tx *Tx) error {
			_, err := tx.Exec("INSERT INTO restarts (execution, start) VALUES ($1, $2)", id, []byte(text))
			return err
		}}
	}
	writes := []write{put("before", "small"), put("large", strings.Repeat("x", 1<<20)), put("after", "small")}
	d.commit(writes)
	for i, id := range []string{"before", "large", "after"} {
		err := Wrap(<-writes[i].result, "test")
		var stored bool
		if err := d.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM restarts WHERE execution = $1)", id).Scan(&stored); err != nil {
			t.Fatal(err)
		}
		refused := id == "large"
		if stored == refused || (err != nil) != refused || refused && runtime.CodeOf(err) != runtime.CodeStorageFull {
			t.Errorf("write %q: stored is %v, and its result %v", id, stored, err)
		}
	}
}

// TestFailedWriteStoresNothing checks that a write whose second statement fails also loses its first one, and
// that the other writes of its transaction are stored.
func TestFailedWriteStoresNothing(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "db"))
	put := func(ids ...string) write {
		return write{result: make(chan error, 1), do: func(tx *Tx) error {
			for _, id := range ids {
				if _, err := tx.Exec("INSERT INTO removals (execution) VALUES ($1)", id); err != nil {
					return err
				}
			}
			return nil
		}}
	}
	writes := []write{put("before"), put("failed", "failed"), put("after")}
	d.commit(writes)
	for i, fails := range []bool{false, true, false} {
		if err := <-writes[i].result; (err != nil) != fails {
			t.Errorf("write %d: got %v, want an error: %t", i, err, fails)
		}
	}
	var got []string
	err := d.Each(t.Context(), "read", func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		got = append(got, id)
		return err
	}, "SELECT execution FROM removals ORDER BY execution")
	if err != nil || !slices.Equal(got, []string{"after", "before"}) {
		t.Errorf("got %q, %v; want after, before", got, err)
	}
}
