// Package logdir keeps the directory of output logs: it says where each is, makes room,
// tries whether one can be written, removes what is kept no longer, and moves away what
// belongs to no known execution. Where servers share their database, that has the logs.
package logdir

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/probe"
	"github.com/rockpool/rockpool/runtime/store"
)

// Options are a directory's settings.
type Options struct {
	Store     *store.Store
	Logger    *zap.Logger
	Keep      time.Duration   // how long finished executions and their output are kept; 0: for ever
	KeepBytes int64           // that all output, and what is stored about finished executions, may take; 0: any
	Failing   func(err error) // called when collecting fails, and with nil when it works again
}

// A Dir is the directory of all logs. Its methods are safe for concurrent use, but for
// PutBack, Count and Collect, which are called once each.
type Dir struct {
	path    string
	store   *store.Store
	logger  *zap.Logger
	keep    time.Duration
	quota   *output.Quota // nil: none
	failing func(err error)

	room      chan roomRequest              // to the collector
	failed    bool                          // the last sweep; the collector's
	listed    bool                          // unremoved has what an earlier server left; the collector's
	unremoved map[runtime.ExecutionID]int64 // the collector's: output of deleted executions that is still on the disk, and what the quota counts of it
	orphans   orphans

	loss   atomic.Pointer[loss] // nil: none that isn't over
	check  *probe.Probe
	counts struct{ collected, written, lost atomic.Int64 }
}

// New returns the directory at a path. Close it.
func New(path string, o Options) *Dir {
	d := &Dir{
		path: path, store: o.Store, logger: o.Logger, keep: o.Keep, failing: o.Failing,
		room: make(chan roomRequest), unremoved: map[runtime.ExecutionID]int64{},
	}
	if o.KeepBytes > 0 {
		d.quota = output.NewQuota(o.KeepBytes)
	}
	d.check = probe.New(d.tryToWrite)
	return d
}

// Close waits for a check that is under way.
func (d *Dir) Close() { d.check.Close() }

// Quota returns what bounds the output, nil: nothing does.
func (d *Dir) Quota() *output.Quota { return d.quota }

// Count adds what the database knows of finished executions to the quota. Call it before
// anything is written.
func (d *Dir) Count(ctx context.Context) error {
	kept, err := d.store.FinishedBytes(ctx)
	d.quota.Add(kept)
	return err
}

// Figures count since the directory was made, but for Kept and Limit.
type Figures struct {
	Collected int64 // executions that were forgotten
	Written   int64 // bytes that were written to logs
	Lost      int64 // bytes that could not be
	Kept      int64 // bytes that executions and their output take
	Limit     int64 // that Kept may come to; 0: nobody counts it
}

// Figures returns what was counted up to now.
func (d *Dir) Figures() Figures {
	f := Figures{Collected: d.counts.collected.Load(), Written: d.counts.written.Load(), Lost: d.counts.lost.Load()}
	f.Kept, f.Limit = d.quota.Used()
	return f
}
