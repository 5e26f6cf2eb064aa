package logdir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/timing"
	"github.com/rockpool/rockpool/test/clock"
	"github.com/rockpool/rockpool/test/descriptors"
	"github.com/rockpool/rockpool/test/disk"
	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a directory of logs with a new store.
func open(t *testing.T, path string, o Options) *Dir {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	o.Store, o.Logger = s, zap.NewNop()
	d := New(path, o)
	t.Cleanup(func() {
		d.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// write writes a file and creates its directory.
func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// finished adds an execution that has ended to the store.
func finished(t *testing.T, d *Dir) runtime.ExecutionID {
	t.Helper()
	x := runtime.Execution{ID: runtime.NewExecutionID(), State: runtime.ExecutionPending, Timestamps: runtime.Timestamps{QueuedAt: time.Now(), StartedAt: time.Now()}}
	if _, _, err := d.options.Store.AddExecution(t.Context(), x, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	x.State, x.Timestamps.FinishedAt = runtime.ExecutionFinished, time.Now()
	if _, err := d.options.Store.FinishExecution(t.Context(), x, 0); err != nil {
		t.Fatal(err)
	}
	return x.ID
}

// TestUnlistableRemovalsAreRetried checks that removals that can't be listed at the start are
// listed and carried out later.
func TestUnlistableRemovalsAreRetried(t *testing.T) {
	var failing atomic.Bool
	d := open(t, t.TempDir(), Options{Failing: func(err error) { failing.Store(err != nil) }})
	id := finished(t, d)
	write(t, d.Path(id), []byte("x"))
	if err := d.options.Store.DeleteExecutions(t.Context(), []runtime.ExecutionID{id}, time.Now()); err != nil {
		t.Fatal(err)
	}
	none, all := descriptors.Limit(t)
	none()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { d.Collect(ctx) })
	defer group.Wait()
	defer cancel()
	wait.For(t, "it is reported", failing.Load)
	all()
	wait.For(t, "all is well", func() bool { return !failing.Load() })
	if _, err := os.Stat(d.Path(id)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its output still exists: got %v, want %v", err, fs.ErrNotExist)
	}
	if left, err := d.options.Store.Removals(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
}

// TestUnremovableFileDoesNotBlockOthers checks that other files of the directory are moved.
func TestUnremovableFileDoesNotBlockOthers(t *testing.T) {
	d := open(t, t.TempDir(), Options{})
	dir, there := filepath.Join(d.path, "??"), filepath.Join(t.TempDir(), "orphaned")
	write(t, filepath.Join(there, "??", "1", "in the way"), nil)
	for _, name := range []string{"1", "2"} {
		write(t, filepath.Join(dir, name), nil)
	}
	if _, err := d.moveUnknown(t.Context(), &orphanDir{path: there}, dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("where one file can't be moved: got %v, want %v", err, fs.ErrExist)
	}
	if _, err := os.Stat(filepath.Join(there, "??", "2")); err != nil {
		t.Error("the other one isn't moved:", err)
	}
	// Neither does what can't be put back.
	write(t, filepath.Join(there, "!!"), nil)
	o := &orphanDir{path: there}
	if _, err := d.putAllBack(t.Context(), o); err == nil || o.files != 2 {
		t.Errorf("%d are counted, %v", o.files, err)
	}
}

// TestOrphansAreBounded checks that orphaned output is limited by the same time and size as
// finished executions.
func TestOrphansAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		stays   int
	}{
		"time":       {Options{Keep: time.Hour}, 1},
		"bytes":      {Options{KeepBytes: 20 << 10}, 1},
		"few bytes":  {Options{KeepBytes: 4 << 10}, 1}, // the newest stays
		"many bytes": {Options{KeepBytes: 1 << 20}, 2},
		"neither":    {Options{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, t.TempDir(), test.options)
			now := time.Now().UTC()
			for _, at := range []time.Time{now, now.Add(-2 * time.Hour)} {
				for _, shard := range []string{"aa", "bb"} {
					write(t, filepath.Join(d.path, orphanedPrefix+at.Format(orphanedTime), shard, "log-"+shard), make([]byte, 8<<10))
				}
			}
			if err := d.PutBack(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 20 { // more than there are parts to remove
				if err := d.boundOrphans(); err != nil {
					t.Fatal(err)
				}
			}
			left, err := filepath.Glob(filepath.Join(d.path, "orphaned-*"))
			if err != nil || len(left) != test.stays || filepath.Base(left[len(left)-1]) != orphanedPrefix+now.Format(orphanedTime) {
				t.Errorf("%q are left, %v", left, err)
			}
			if logs, _ := filepath.Glob(filepath.Join(d.path, "orphaned-*", "??", "*")); len(logs) != 2*test.stays {
				t.Errorf("%q are left", logs)
			}
		})
	}
}

// TestStepsRemoveNoOrphans has a clock that began before the wall clock was stepped.
func TestStepsRemoveNoOrphans(t *testing.T) {
	for _, step := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		d := open(t, t.TempDir(), Options{Keep: time.Hour})
		d.options.Clock = timing.Clock{Began: clock.Step(time.Now(), -step)}
		write(t, filepath.Join(d.path, "aa", "log"), []byte("x"))
		if err := errors.Join(d.MoveOrphans(t.Context()), d.boundOrphans()); err != nil {
			t.Fatal(err)
		}
		if logs, _ := filepath.Glob(filepath.Join(d.path, orphanedPrefix+"*", "aa", "log")); len(logs) != 1 {
			t.Errorf("after a step of %v new orphans are outdated", step)
		}
	}
}

// TestUnreadableOutputIsNotEmpty also checks that unremovable output isn't treated as removed.
func TestUnreadableOutputIsNotEmpty(t *testing.T) {
	disk := disk.New(t)
	d := open(t, disk.Dir, Options{Keep: time.Hour})
	none, all := descriptors.Limit(t)
	none()
	if err := d.PutBack(t.Context()); !errors.Is(err, unix.EMFILE) {
		t.Errorf("nothing was found, and got %v, want %v", err, unix.EMFILE)
	}
	all()

	dir := filepath.Join(d.path, orphanedPrefix+time.Now().UTC().Add(-2*time.Hour).Format(orphanedTime))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	disk.Lock(t, dir)
	if err := d.PutBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.boundOrphans(); !errors.Is(err, unix.EPERM) {
		t.Errorf("it was removed: got %v, want %v", err, unix.EPERM)
	}
	disk.Unlock(t, dir)
	if err := d.boundOrphans(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is forgotten, but exists: got %v, want %v", err, fs.ErrNotExist)
	}
}
