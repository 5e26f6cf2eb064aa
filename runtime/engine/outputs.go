package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/probe"
	"github.com/rockpool/rockpool/runtime/session"
)

// outputs knows whether output logs can be written.
type outputs struct {
	loss  atomic.Pointer[outputLoss] // nil: none that isn't over
	check *probe.Probe
}

// An outputLoss is the last write of a log that failed.
type outputLoss struct {
	at  time.Time
	err error
}

// Lost notes that output could not be written.
func (e *Engine) Lost(bytes int64, err error) {
	e.counts.outputLost.Add(bytes)
	e.outputs.loss.Store(&outputLoss{time.Now(), err})
}

// Wrote notes that output was written.
func (e *Engine) Wrote(bytes int64) {
	e.counts.output.Add(bytes)
	if e.outputs.loss.Load() != nil {
		e.outputs.loss.Store(nil)
	}
}

// outputHealth says whether output can be written now, by trying: what was lost
// says nothing of that, since perhaps nothing was printed after it. stalls reports
// that the disk doesn't answer.
func (e *Engine) outputHealth(ctx context.Context) (status HealthStatus, message string, stalls bool) {
	loss := e.outputs.loss.Load()
	began, err := e.outputs.check.Ask(ctx)
	switch {
	case err != nil:
		return HealthDown, "what programs print is lost, since " + err.Error(), errors.Is(err, probe.ErrLate) || ctx.Err() != nil
	case loss == nil:
		return HealthOK, "", false
	case errors.Is(loss.err, output.ErrQuota) && e.quota.Over(e.quota.Reserve()+output.DiskBytes(1)) > 0, !began.After(loss.at):
		return HealthDegraded, "output is being lost: " + loss.err.Error(), false
	}
	e.outputs.loss.CompareAndSwap(loss, nil)
	return HealthOK, "", false
}

// tryOutput makes a file where the logs are, brings it to the disk, and removes it. After a
// loss it needs as much room as a log would at once.
func (e *Engine) tryOutput() error {
	size := 1
	if e.outputs.loss.Load() != nil {
		size = session.FlushBytes
	}
	err := os.MkdirAll(e.outputDir(), 0o700)
	path := filepath.Join(e.outputDir(), "check")
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

func (e *Engine) outputDir() string { return filepath.Join(e.dir, "output") }
