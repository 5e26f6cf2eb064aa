package database

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
	"github.com/rockpool/rockpool/runtime/disk"
	"github.com/rockpool/rockpool/runtime/syncs"
)

type file struct {
	path string
	info os.FileInfo
}

// patience is how long a checkpoint may run before the disk is considered stalled.
const patience = 4 * time.Second

// Check returns nil if the database works, or did within the last second. Otherwise it returns an
// error that says what to do; STORAGE_FULL means that only room is missing. It writes to the
// database like any other write, and also reports a checkpoint that failed or hangs. Once any read or
// write has found damage, it reports that for ever.
func (d *DB) Check(ctx context.Context) error {
	_, err := d.check.Check(ctx)
	_ = d.note(err)
	if damage := d.damage.Load(); damage != nil { // also of a part that a check doesn't read
		return d.backend.damaged(*damage)
	}
	if errors.Is(err, syncs.ErrProbeLate) {
		return errors.New(d.backend.stalls())
	}
	return err
}

func (d *DB) tryWrite() error {
	return d.backend.check(func() error {
		bytes := 1
		if d.full.Load() != nil {
			bytes = checkBytes
		}
		err := d.Write(context.Background(), "check the store", func(tx *Tx) error {
			_, err := tx.Exec("INSERT INTO spent_keys (key, input, runner, expires) VALUES ('', $1, '', 0)", strings.Repeat(" ", bytes))
			if err == nil {
				_, err = tx.Exec("DELETE FROM spent_keys WHERE key = ''")
			}
			return err
		})
		// Reads must work too, also on a server that doesn't lead.
		if err == nil || errors.Is(err, errFollows) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var one int
			err = d.QueryRow(ctx, "SELECT 1").Scan(&one)
		}
		return err
	})
}

// check returns why the database can't be written, or nil. It writes with write, and examines the
// file, the checkpoints and the disk.
func (d *sqliteDB) check(write func() error) error {
	if err := d.intact(); err != nil {
		return err
	}
	err := write()
	if err == nil {
		if failed := d.stays.Load(); failed != nil {
			err = Wrap(*failed, "bring writes to the disk")
		}
	}
	if began := d.began.Load(); err == nil && began != nil && time.Since(*began) > patience {
		return fmt.Errorf("writes have not reached the disk for %.0f s: the disk stalls; see the kernel's log (dmesg)", time.Since(*began).Seconds())
	}
	if err != nil {
		return d.explained(err)
	}
	return d.descriptors()
}

// intact returns an error if the open files aren't the ones that the next server will find.
func (d *sqliteDB) intact() error {
	for _, opened := range d.files {
		now, err := os.Stat(opened.path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, opened.info):
			return fmt.Errorf("%s was deleted, moved or replaced while the server has it open: everything stored from now on is lost when the server ends; put the file back, or stop the server and restore the database from its backup", opened.path)
		case err != nil:
			return fmt.Errorf("check the database's file: %w", err)
		}
	}
	return nil
}

// descriptors returns an error if the server can't open another file. Reads open the database, and most
// requests open files too.
func (d *sqliteDB) descriptors() error {
	dir, err := os.Open(d.dir())
	if err != nil {
		return d.explained(err)
	}
	return dir.Close()
}

func (d *sqliteDB) dir() string { return filepath.Dir(d.files[0].path) }

const diskFailed = "the disk failed, or the file's permissions changed: see the kernel's log (dmesg)"

func (d *sqliteDB) explained(err error) error {
	if runtime.CodeOf(err) == runtime.CodeStorageFull {
		return err
	}
	ofDisk := hasCode(err, sqliteReadOnly, sqliteIO, sqliteCantOpen)
	if ofDisk {
		err = errors.Join(err, d.tryFile()) // more specific, if it fails too
	}
	advice := disk.Advice(err)
	switch {
	case advice != "":
	case ofDisk:
		advice = diskFailed
	default:
		advice = "see the server's log and the kernel's (dmesg)"
	}
	return fmt.Errorf("the database is not writable: %s: %w", advice, err)
}

// tryFile creates a file in the database's directory. Unlike SQLite, it returns the system's own error.
func (d *sqliteDB) tryFile() error {
	file, err := os.CreateTemp(d.dir(), "check-*")
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, 1))
	return errors.Join(err, file.Sync(), file.Close(), os.Remove(file.Name()))
}
