package logdir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rockpool/rockpool/runtime/disk"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// A loss is the last failed write of a log.
type loss struct {
	at  time.Time
	err error
}

// Lost records that output could not be written.
func (d *Dir) Lost(bytes int64, err error) {
	d.counts.lost.Add(bytes)
	d.loss.Store(&loss{time.Now(), err})
}

// Wrote records that output was written.
func (d *Dir) Wrote(bytes int64) {
	d.counts.written.Add(bytes)
	if d.loss.Load() != nil {
		d.loss.Store(nil)
	}
}

// A Fault is why output is lost. The zero Fault means that none is lost.
type Fault struct {
	Message string
	Down    bool // no output can be written now
	Stalls  bool // the disk doesn't respond
}

// Check reports whether output can be written now, by writing. A past loss proves nothing about
// that, since perhaps nothing was printed after it.
func (d *Dir) Check(ctx context.Context) Fault {
	loss := d.loss.Load()
	began, err := d.check.Check(ctx)
	switch {
	case err != nil:
		return Fault{"the output of programs is being lost: " + err.Error(), true, errors.Is(err, syncs.ErrProbeLate) || ctx.Err() != nil}
	case loss == nil:
		return Fault{}
	case errors.Is(loss.err, output.ErrQuota) && d.quota.Over(d.quota.Reserve()+output.DiskBytes(1)) > 0, !began.After(loss.at):
		return Fault{Message: "output is being lost: " + loss.err.Error()}
	}
	// The check began after the loss and succeeded. A newer loss stays.
	d.loss.CompareAndSwap(loss, nil)
	return Fault{}
}

// tryToWrite creates a file in the directory of logs, syncs it, and removes it. After a loss it
// writes as much as a log writes together.
func (d *Dir) tryToWrite() error {
	if d.options.Store.Shared() {
		return nil // the store's own check covers it
	}
	size := 1
	if d.loss.Load() != nil {
		size = output.FlushBytes
	}
	err := os.MkdirAll(d.path, 0o700)
	path := filepath.Join(d.path, "check")
	if err == nil {
		err = writeThrough(path, make([]byte, size))
		if left := os.Remove(path); err == nil {
			err = left
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("output logs are not writable: %s: %w", cmp.Or(disk.Advice(err), "see the kernel's log (dmesg)"), err)
}

// writeThrough writes a file and syncs it, because a failing disk may show only then.
func writeThrough(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
