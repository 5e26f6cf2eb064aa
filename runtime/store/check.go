package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/probe"
)

// A file is one that was open when info was taken.
type file struct {
	path string
	info os.FileInfo
}

// patience is for how long a checkpoint may run until the disk is taken to stall.
const patience = 4 * time.Second

// Check returns an error, which says what to do, unless the database stores
// what is written to it, or did within the last second. It writes to it, in the
// way in which all is written, and knows whether the last checkpoint failed, and
// whether one hangs. STORAGE_FULL: only room is missing.
func (s *Store) Check(ctx context.Context) error {
	_, err := s.check.Ask(ctx)
	if errors.Is(err, probe.ErrLate) {
		return errors.New(s.db.stalls())
	}
	return err
}

// tryWrite is what Check does.
func (s *Store) tryWrite() error {
	return s.db.check(func() error {
		bytes := 1
		if s.full.Load() != nil {
			bytes = checkBytes
		}
		err := s.write(context.Background(), "check the store", func(tx *transaction) error {
			_, err := tx.Exec(putSpentKey, "", strings.Repeat(" ", bytes), "", 0)
			if err == nil {
				_, err = tx.Exec("DELETE FROM spent_keys WHERE key = ''")
			}
			return err
		})
		if err == nil || errors.Is(err, errFollows) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var one int
			err = s.reads.QueryRowContext(ctx, "SELECT 1").Scan(&one)
		}
		return err
	})
}

func (d *sqliteDB) check(write func() error) error {
	if err := d.intact(); err != nil {
		return err
	}
	err := write()
	if err == nil {
		if failed := d.stays.Load(); failed != nil {
			err = typed(*failed, "bring writes to the disk")
		}
	}
	if began := d.began.Load(); err == nil && began != nil && time.Since(*began) > patience {
		return fmt.Errorf("writes have not reached the disk for %.0f s: it stalls; see the kernel's log (dmesg)", time.Since(*began).Seconds())
	}
	if err != nil {
		return d.explained(err)
	}
	return d.descriptors()
}

// intact returns an error if what is stored goes to a file that the next server
// won't find.
func (d *sqliteDB) intact() error {
	for _, opened := range d.files {
		now, err := os.Stat(opened.path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, opened.info):
			return fmt.Errorf("%s was deleted, moved or replaced while the server has it open: all that is stored now is lost when the server ends; put the file back, or stop the server and restore the database from its backup", opened.path)
		case err != nil:
			return fmt.Errorf("the database can't be looked at: %w", err)
		}
	}
	return nil
}

// descriptors returns an error if the server can't open another file: reads
// open the database, and so does everything else that is asked of the server.
func (d *sqliteDB) descriptors() error {
	dir, err := os.Open(d.dir())
	if err != nil {
		return d.explained(err)
	}
	return dir.Close()
}

func (d *sqliteDB) dir() string { return filepath.Dir(d.files[0].path) }

// explained returns an error of SQLite's or of the system's with what to do.
func (d *sqliteDB) explained(err error) error {
	if runtime.CodeOf(err) == runtime.CodeStorageFull {
		return err
	}
	ofDisk := hasCode(err, sqliteReadOnly, sqliteIO, sqliteCantOpen)
	if ofDisk {
		err = errors.Join(err, d.tryFile()) // which says more, if it fails as well
	}
	advice := probe.Advice(err)
	switch {
	case advice != "":
	case hasCode(err, sqliteCorrupt, sqliteNoDatabase):
		advice = "the file is damaged: stop the server, and restore the database from its backup"
	case ofDisk:
		advice = "the disk fails, or the file's permissions were changed: see the kernel's log (dmesg)"
	default:
		advice = "the server's log and the kernel's (dmesg) say more"
	}
	return fmt.Errorf("the database can't be written: %s: %w", advice, err)
}

// tryFile makes a file beside the database: unlike SQLite it returns the
// system's own error.
func (d *sqliteDB) tryFile() error {
	file, err := os.CreateTemp(d.dir(), "check-*")
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, 1))
	return errors.Join(err, file.Sync(), file.Close(), os.Remove(file.Name()))
}
