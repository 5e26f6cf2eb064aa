package database

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/disk"
	"github.com/rockpool/rockpool/test/wait"
)

// wantBroken waits until Check returns an error that contains all words.
func (d *DB) wantBroken(t *testing.T, words ...string) {
	t.Helper()
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("at last Check said %v", err)
		}
	}()
	wait.For(t, fmt.Sprintf("Check finds out, and says %q", words), func() bool { // before, a busy disk may stall
		err = d.Check(t.Context())
		return err != nil && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(err.Error(), word) })
	})
}

func (d *DB) wantWell(t *testing.T) {
	t.Helper()
	wait.For(t, "Check finds out that it is over", func() bool { return d.Check(t.Context()) == nil })
}

// TestCheckReportsAFailedDisk keeps the files open, so that only a write detects the failure.
func TestCheckReportsAFailedDisk(t *testing.T) {
	for name, test := range map[string]struct {
		fail  func(disk.Disk, testing.TB)
		words []string
	}{
		"read-only":    {disk.Disk.Error, []string{"read-only", "remount it writable"}},
		"input/output": {disk.Disk.Die, []string{"the disk failed", "dmesg", unix.EIO.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			at := disk.New(t)
			d, err := Open(t.Context(), filepath.Join(at.Dir, "db"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() }) // it can't bring its log to the disk
			d.wantWell(t)
			test.fail(at, t)
			d.wantBroken(t, test.words...)
			if err := put(t, d, "r", nil); err == nil {
				t.Error("a real write succeeds")
			}
		})
	}
}

// TestCheckReportsLostWrites uses a disk on which writes reach only the page cache, so that only
// the checkpoint fails. The kernel may drop pages that it couldn't write, above all while it
// searches for idle memory (DAMON). SQLite then reads other data and reports a damaged file, and
// Check must report that afterwards.
func TestCheckReportsLostWrites(t *testing.T) {
	at := disk.NewThin(t)
	d := open(t, filepath.Join(at.Dir, "db"))
	d.wantWell(t)
	at.Starve(t)
	dropped := func(err error) bool {
		if !hasCode(err, sqliteCorrupt, sqliteNoDatabase) {
			return false
		}
		t.Log("the kernel dropped what it couldn't write:", err)
		d.wantBroken(t, "is damaged")
		return true
	}
	if err := put(t, d, "r", make([]byte, 4<<20)); dropped(err) {
		return
	} else if err != nil {
		t.Fatal("a commit finds out:", err)
	}
	d.wantBroken(t, "is not writable") // whether the disk is full or fails: the kernel says either
	if err := d.Check(t.Context()); dropped(err) {
		return
	} else if err == nil || !strings.Contains(err.Error(), "disk") {
		t.Errorf("Check says %v, want an error about the disk", err)
	}
	if err := put(t, d, "r2", nil); dropped(err) {
		return
	} else if err != nil {
		t.Error("a commit finds out:", err)
	}
	at.Feed(t)
	wait.For(t, "Check finds out that it is over", func() bool {
		err := d.Check(t.Context())
		return err == nil || dropped(err)
	})
}

// TestCheckReportsAStalledDisk lets commits succeed and the checkpoint hang.
func TestCheckReportsAStalledDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, filepath.Join(t.TempDir(), "db"))
		hangs, release := make(chan struct{}), make(chan struct{})
		file := d.backend.(*sqliteDB)
		passive := file.checkpoint
		file.checkpoint = func() (bool, error) { // called after the first write only
			close(hangs)
			<-release
			file.checkpoint = passive
			return passive()
		}
		if err := d.Check(t.Context()); err != nil {
			t.Error(err)
		}
		<-hangs
		time.Sleep(patience)
		if err := d.Check(t.Context()); err != nil {
			t.Error("the checkpoint hasn't taken too long, but the check fails:", err)
		}
		time.Sleep(patience)
		if err := put(t, d, "r", nil); err != nil {
			t.Fatal("a commit finds out:", err)
		}
		if err := d.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "8 s") {
			t.Errorf("Check says %v, want a stall of 8 s", err)
		}
		close(release)
		time.Sleep(patience)
		if err := d.Check(t.Context()); err != nil {
			t.Error("when it is over", err)
		}
	})
}

// TestCheckRecovers checks recovery without a restart.
func TestCheckRecovers(t *testing.T) {
	t.Run("writes are refused", func(t *testing.T) {
		at := disk.New(t)
		path := filepath.Join(at.Dir, "db")
		d := open(t, path)
		d.wantWell(t)
		at.Lock(t, path+"-wal")
		d.wantBroken(t, "is not writable")
		at.Unlock(t, path+"-wal")
		d.wantWell(t)
	})
	t.Run("moved away", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "db")
		d := open(t, path)
		for _, moved := range []string{path, path + "-wal"} {
			d.wantWell(t)
			if err := os.Rename(moved, moved+".away"); err != nil {
				t.Fatal(err)
			}
			d.wantBroken(t, moved, "deleted, moved or replaced")
			if err := os.Rename(moved+".away", moved); err != nil {
				t.Fatal(err)
			}
		}
		d.wantWell(t)
	})
	t.Run("replaced", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "db")
		d := open(t, path)
		d.wantWell(t)
		other := open(t, path+".other")
		if _, err := other.reads.Exec("VACUUM INTO ?", path+".new"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Rename(path, path+".away"), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
		d.wantBroken(t, path, "replaced", "restore")
		// Writes meanwhile don't reach the other file.
		if err := put(t, d, "meanwhile", nil); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
		d.wantWell(t)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		var found bool
		err := open(t, path).QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM runners WHERE id = 'meanwhile')").Scan(&found)
		if err != nil || !found {
			t.Error("what was stored meanwhile is missing", err)
		}
	})
	t.Run("locked by another program", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "db")
		d := open(t, path)
		d.wantWell(t)
		other, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)")
		if err != nil {
			t.Fatal(err)
		}
		tx, err := other.Begin()
		if err != nil {
			t.Fatal(err)
		}
		d.wantBroken(t, "locked", "fuser")
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		d.wantWell(t)
	})
}

// TestCheckReportsMissingDescriptors uses up the process's file descriptors.
func TestCheckReportsMissingDescriptors(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "db"))
	d.wantWell(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	set := func(cur uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: cur, Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	defer set(limit.Cur)
	d.wantBroken(t, unix.EMFILE.Error(), "LimitNOFILE")
	set(limit.Cur)
	d.wantWell(t)
}
