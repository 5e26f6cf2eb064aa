package logdir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/probe"
)

// A loss is the last write of a log that failed.
type loss struct {
	at  time.Time
	err error
}

// Lost notes that output could not be written.
func (d *Dir) Lost(bytes int64, err error) {
	d.counts.lost.Add(bytes)
	d.loss.Store(&loss{time.Now(), err})
}

// Wrote notes that output was written.
func (d *Dir) Wrote(bytes int64) {
	d.counts.written.Add(bytes)
	if d.loss.Load() != nil {
		d.loss.Store(nil)
	}
}

// A Fault is why output is lost. The zero Fault: it isn't.
type Fault struct {
	Message string
	Down    bool // none can be written now
	Stalls  bool // the disk doesn't answer
}

// Check says whether output can be written now, by trying: what was lost says nothing of
// that, since perhaps nothing was printed after it.
func (d *Dir) Check(ctx context.Context) Fault {
	loss := d.loss.Load()
	began, err := d.check.Ask(ctx)
	switch {
	case err != nil:
		return Fault{"what programs print is lost, since " + err.Error(), true, errors.Is(err, probe.ErrLate) || ctx.Err() != nil}
	case loss == nil:
		return Fault{}
	case errors.Is(loss.err, output.ErrQuota) && d.quota.Over(d.quota.Reserve()+output.DiskBytes(1)) > 0, !began.After(loss.at):
		return Fault{Message: "output is being lost: " + loss.err.Error()}
	}
	d.loss.CompareAndSwap(loss, nil)
	return Fault{}
}

// tryToWrite makes a file where the logs are, brings it to the disk, and removes it. After a
// loss it needs as much room as a log would at once.
func (d *Dir) tryToWrite() error {
	if d.store.Shared() {
		return nil // the store's own check tries
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
	return fmt.Errorf("no log can be written: %s: %w", cmp.Or(probe.Advice(err), "see the kernel's log (dmesg)"), err)
}

// writeThrough writes a file and waits until the disk has it: a disk that fails
// may show only then.
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
