package store

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// TestFullDiskRefusesOnlyTheWritesThatDoNotFit checks writes that share a transaction: those that
// returned an error aren't stored, and the others are. SQLite abandons a whole transaction if one
// statement doesn't fit.
func TestFullDiskRefusesOnlyTheWritesThatDoNotFit(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	var pages int
	if err := s.db.(*sqliteDB).writes.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.(*sqliteDB).writes.Exec("PRAGMA max_page_count = " + strconv.Itoa(pages+10)); err != nil {
		t.Fatal(err)
	}
	put := func(id, text string) write {
		return write{result: make(chan error, 1), do: func(tx *transaction) error {
			_, err := tx.Exec("INSERT INTO restarts (execution, start) VALUES ($1, $2)", id, []byte(text))
			return err
		}}
	}
	writes := []write{put("before", "small"), put("large", strings.Repeat("x", 1<<20)), put("after", "small")}
	s.commit(writes)
	for i, id := range []string{"before", "large", "after"} {
		err := typed(<-writes[i].result, "test")
		var stored bool
		if err := s.reads.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT 1 FROM restarts WHERE execution = $1)", id).Scan(&stored); err != nil {
			t.Fatal(err)
		}
		refused := id == "large"
		if stored == refused || (err != nil) != refused || refused && runtime.CodeOf(err) != runtime.CodeStorageFull {
			t.Errorf("write %q: stored is %v, and its result %v", id, stored, err)
		}
	}
}
