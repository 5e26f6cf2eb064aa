// Package logdir manages the directory of output logs. It locates logs, makes room, checks whether
// they are writable, and applies the retention. It moves away output that belongs to no known
// execution. If servers share a database, the logs are in there.
package logdir

import (
	"context"
	"io"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/syncs"
	"github.com/rockpool/rockpool/runtime/timing"
)

// Options are a directory's settings.
type Options struct {
	Store     *store.Store
	Logger    *zap.Logger
	Keep      time.Duration   // how long finished executions and their output are kept, 0 for ever
	KeepBytes int64           // limit for all output and all records of finished executions, 0 if there is none
	Failing   func(err error) // called when retention fails, and with nil when it works again
	Clock     timing.Clock    // of the times of executions; the zero clock means a new one
}

// A Dir is the directory of all logs. Its methods are safe for concurrent use, except PutBack,
// Count and Collect, which must be called once each.
type Dir struct {
	options Options
	path    string
	quota   *output.Quota // nil if there is none

	room   chan roomRequest // to the collector
	failed bool             // the last sweep failed; owned by the collector
	listed bool             // unremoved includes leftovers of earlier servers; owned by the collector
	// unremoved is the output of deleted executions that is still on the disk, with its part of the
	// quota. It is owned by the collector.
	unremoved map[runtime.ExecutionID]int64
	orphans   orphans

	loss   atomic.Pointer[loss] // the present loss of output, nil if there is none
	check  *syncs.Probe
	counts struct{ collected, written, lost atomic.Int64 }
}

// New returns the directory at a path. Close it after use.
func New(path string, o Options) *Dir {
	if o.Clock == (timing.Clock{}) {
		o.Clock = timing.NewClock()
	}
	d := &Dir{options: o, path: path, room: make(chan roomRequest), unremoved: map[runtime.ExecutionID]int64{}}
	if o.KeepBytes > 0 {
		d.quota = output.NewQuota(o.KeepBytes)
	}
	d.check = syncs.NewProbe(d.tryToWrite)
	return d
}

// Close waits for a running check.
func (d *Dir) Close() { d.check.Close() }

// Quota returns the quota of all output, nil if it is unlimited.
func (d *Dir) Quota() *output.Quota { return d.quota }

// Count adds the finished executions in the database to the quota. Call it before anything is written.
func (d *Dir) Count(ctx context.Context) error {
	kept, err := d.options.Store.FinishedBytes(ctx)
	d.quota.Add(kept)
	return err
}

// Figures are counters since the directory was made, and gauges of the present.
type Figures struct {
	Collected int64 // executions removed by retention
	Written   int64 // bytes written to logs
	Lost      int64 // bytes that could not be written
	Kept      int64 // bytes that executions and their output use
	Limit     int64 // limit of Kept, 0 if there is none
}

// Figures returns the present figures.
func (d *Dir) Figures() Figures {
	f := Figures{Collected: d.counts.collected.Load(), Written: d.counts.written.Load(), Lost: d.counts.lost.Load()}
	f.Kept, f.Limit = d.quota.Used()
	return f
}

// Location returns the location of an execution's log, whether it exists or not.
func (d *Dir) Location(id runtime.ExecutionID) output.Location {
	if d.options.Store != nil && d.options.Store.Shared() {
		return rows{d.options.Store, id}
	}
	return output.File(d.Path(id))
}

// Path returns the path of an execution's log, unless that is in the database.
func (d *Dir) Path(id runtime.ExecutionID) string {
	// By the last two digits, which are random, so that no directory grows too large.
	return filepath.Join(d.path, string(id[max(0, len(id)-2):]), string(id))
}

// rows is a log in a shared database. Each write is stored completely or not at all.
type rows struct {
	store *store.Store
	id    runtime.ExecutionID
}

func (r rows) Size() (int64, error) {
	size, err := r.store.OutputSize(context.Background(), r.id)
	if err == nil && size == 0 {
		err = fs.ErrNotExist
	}
	return size, err
}

func (r rows) Open() (output.Bytes, error) { return r, nil }

func (r rows) Create() (output.Written, error) { return r, nil }

func (r rows) Reopen() (output.Written, error) {
	_, err := r.Size()
	return r, err
}

func (r rows) PutAside() error { return r.store.PutOutputAside(context.Background(), r.id) }

// ReadAt implements io.ReaderAt.
func (r rows) ReadAt(p []byte, at int64) (int, error) {
	n, err := r.store.ReadOutput(context.Background(), r.id, at, p)
	switch {
	case err != nil || n == len(p):
	case n == 0 && at == 0: // removed by retention
		err = fs.ErrNotExist
	default:
		err = io.EOF
	}
	return n, err
}

// WriteAt implements io.WriterAt.
func (r rows) WriteAt(p []byte, at int64) (int, error) {
	if err := r.store.AppendOutput(context.Background(), r.id, at, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Truncate does nothing, because nothing can follow the last whole write.
func (rows) Truncate(int64) error { return nil }

// Close does nothing.
func (rows) Close() error { return nil }
