package engine

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/disk"
	"github.com/rockpool/rockpool/test/wait"
)

// component returns a part of Health.
func (b *bed) component(t *testing.T, name string) ComponentHealth {
	t.Helper()
	for _, c := range b.Health(t.Context()).Components {
		if c.Name == name {
			return c
		}
	}
	return ComponentHealth{}
}

func (b *bed) wantOutput(t *testing.T, id runtime.ExecutionID, want string) {
	t.Helper()
	if got, _ := b.events(t, id, ""); got != want {
		t.Errorf("the output is %q, not %q", got, want)
	}
}

// loseDatabase removes it while no engine runs.
func (b *bed) loseDatabase(t *testing.T) {
	t.Helper()
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(b.dir, "db"+end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func (b *bed) orphaned(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(b.dir, "output", "orphaned-*", "??", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestOlderDatabase: one is restored from a backup. What it doesn't know stays, and
// comes back with the database that does.
func TestOlderDatabase(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	old := b.run(t, r.ID, "echo", "old")
	backup := filepath.Join(t.TempDir(), "db")
	db, err := sql.Open("sqlite", filepath.Join(b.dir, "db"))
	if err == nil {
		_, err = db.Exec("VACUUM INTO ?", backup)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	younger := b.run(t, r.ID, "echo", "younger")
	b.stop()
	newer := filepath.Join(t.TempDir(), "db")
	if err := os.Rename(filepath.Join(b.dir, "db"), newer); err != nil {
		t.Fatal(err)
	}
	b.loseDatabase(t)
	if err := os.Rename(backup, filepath.Join(b.dir, "db")); err != nil {
		t.Fatal(err)
	}

	b.start(t)
	wait.For(t, "its output is moved away", func() bool { return len(b.orphaned(t)) == 1 })
	if found := b.orphaned(t)[0]; filepath.Base(found) != string(younger.ID) {
		t.Errorf("%s was moved away", found)
	}
	wait.For(t, "it is counted", func() bool { return strings.Contains(b.component(t, "orphaned output").Message, " Logs: 1 (1 MiB)") })
	c := b.component(t, "orphaned output")
	if c.Status != HealthDegraded || !strings.Contains(c.Message, filepath.Join(b.dir, "output", "orphaned-")) || !strings.Contains(c.Message, "older backup") {
		t.Errorf("%+v", c)
	}
	b.wantOutput(t, old.ID, "old\n")
	b.stop()
	b.start(t) // it stays, and is told of
	if c := b.component(t, "orphaned output"); len(b.orphaned(t)) != 1 || c.Status != HealthDegraded || !strings.Contains(c.Message, " Logs: 1 (1 MiB)") {
		t.Errorf("%+v", c)
	}

	b.stop()
	b.loseDatabase(t)
	if err := os.Rename(newer, filepath.Join(b.dir, "db")); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	b.wantOutput(t, old.ID, "old\n")
	b.wantOutput(t, younger.ID, "younger\n")
	if c := b.component(t, "orphaned output"); c.Name != "" || len(b.orphaned(t)) != 0 {
		t.Errorf("%+v, and %q", c, b.orphaned(t))
	}
}

// TestLostDatabase: nothing is left of it.
func TestLostDatabase(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	ids := map[string]bool{}
	for range 10 {
		ids[string(b.run(t, r.ID, "echo", "kept").ID)] = true
	}
	b.stop()
	b.loseDatabase(t)
	b.start(t)
	wait.For(t, "all is moved away", func() bool { return len(b.orphaned(t)) == len(ids) })
	for _, path := range b.orphaned(t) {
		if log, err := os.ReadFile(path); err != nil || !ids[filepath.Base(path)] || !strings.HasSuffix(string(log), "kept\n") {
			t.Errorf("%s: %q, %v", path, log, err)
		}
	}
	wait.For(t, "all is counted", func() bool { return strings.Contains(b.component(t, "orphaned output").Message, " Logs: 10 (1 MiB)") })
	c := b.component(t, "orphaned output")
	if c.Status != HealthDegraded || !strings.Contains(c.Message, "the database was new") {
		t.Errorf("%+v", c)
	}
	// An operator who doesn't want it deletes it.
	if err := os.RemoveAll(filepath.Dir(filepath.Dir(b.orphaned(t)[0]))); err != nil {
		t.Fatal(err)
	}
	if c := b.component(t, "orphaned output"); c.Name != "" {
		t.Errorf("%+v", c)
	}
}

// TestOrphansThatCannotBeMoved are reported, and keep no others where they are.
func TestOrphansThatCannotBeMoved(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	for range 5 {
		b.run(t, r.ID, "echo", "kept")
	}
	b.stop()
	b.loseDatabase(t)
	bad := filepath.Join(b.outputDir(), "!!") // it comes first, and isn't a directory
	if err := os.WriteFile(bad, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	wait.For(t, "the others are moved away", func() bool { return len(b.orphaned(t)) == 5 })
	wait.For(t, "it is reported", func() bool {
		c := b.component(t, "restore")
		return c.Status == HealthDegraded && strings.Contains(c.Message, bad)
	})

	dir, there := filepath.Join(b.outputDir(), "??"), filepath.Join(t.TempDir(), "orphaned")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(filepath.Join(there, "??", "1"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1", "2"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.moveUnknown(t.Context(), &orphaned{path: there}, dir); !errors.Is(err, fs.ErrExist) {
		t.Error("where one file can't be moved:", err)
	}
	if _, err := os.Stat(filepath.Join(there, "??", "2")); err != nil {
		t.Error("the other one isn't moved:", err)
	}
	// Neither does what can't be put back.
	if err := os.WriteFile(filepath.Join(there, "!!"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := &orphaned{path: there}
	if _, err := b.putAllBack(t.Context(), o); err == nil || o.files != 2 {
		t.Errorf("%d are counted, %v", o.files, err)
	}
}

// TestKilledWhileCollecting: the execution is deleted, its output not yet.
func TestKilledWhileCollecting(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	x, kept := b.run(t, r.ID, "echo", "x"), b.run(t, r.ID, "echo", "kept")
	if err := b.store.DeleteExecutions(t.Context(), []runtime.ExecutionID{x.ID}, time.Now()); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start(t)
	wait.For(t, "it goes", func() bool {
		left, err := b.store.Removals(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	})
	if _, err := os.Stat(b.logPath(x.ID)); !errors.Is(err, fs.ErrNotExist) || len(b.orphaned(t)) > 0 {
		t.Errorf("what was to be removed is kept: %v, %q", err, b.orphaned(t))
	}
	b.wantOutput(t, kept.ID, "kept\n")
}

// TestOrphansAreBounded by how long, and how much, finished executions are kept.
func TestOrphansAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		stays  int
	}{
		"time":       {Config{Keep: time.Hour}, 1},
		"bytes":      {Config{KeepBytes: 20 << 10}, 1},
		"few bytes":  {Config{KeepBytes: 4 << 10}, 1}, // the newest stays
		"many bytes": {Config{KeepBytes: 1 << 20}, 2},
		"neither":    {Config{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := keeping(t, test.config)
			b.stop()
			now := time.Now().UTC()
			for _, at := range []time.Time{now, now.Add(-2 * time.Hour)} {
				for _, shard := range []string{"aa", "bb"} {
					dir := filepath.Join(b.dir, "output", "orphaned-"+at.Format(orphanedTime), shard)
					err := os.MkdirAll(dir, 0o700)
					if err == nil {
						err = os.WriteFile(filepath.Join(dir, "log-"+shard), make([]byte, 8<<10), 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			b.start(t)
			for range 20 { // more than there are parts to remove
				if err := b.boundOrphans(); err != nil {
					t.Fatal(err)
				}
			}
			wait.For(t, "what is kept no longer is removed", func() bool {
				left, err := filepath.Glob(filepath.Join(b.dir, "output", "orphaned-*"))
				return err == nil && len(left) == test.stays
			})
			if left := b.orphaned(t); len(left) != 2*test.stays {
				t.Errorf("%q are left", left)
			}
			if left, _ := filepath.Glob(filepath.Join(b.dir, "output", "orphaned-"+now.Format(orphanedTime))); len(left) != 1 {
				t.Error("the newest is gone")
			}
		})
	}
}

// TestUnreadableOutputIsNotEmpty: neither is what can't be removed gone.
func TestUnreadableOutputIsNotEmpty(t *testing.T) {
	d := disk.New(t)
	b, _ := keeping(t, Config{Keep: time.Hour})
	b.stop()
	if err := os.RemoveAll(b.outputDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(d.Dir, b.outputDir()); err != nil {
		t.Fatal(err)
	}
	none, all := descriptors(t)
	none()
	if err := b.findOrphans(t.Context()); !errors.Is(err, unix.EMFILE) {
		t.Error("nothing was found, and", err)
	}
	all()

	dir := filepath.Join(b.outputDir(), orphanedPrefix+time.Now().UTC().Add(-2*time.Hour).Format(orphanedTime))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.Lock(t, dir)
	if err := b.findOrphans(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.boundOrphans(); !errors.Is(err, unix.EPERM) {
		t.Error("it was removed:", err)
	}
	d.Unlock(t, dir)
	if err := b.boundOrphans(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("it is forgotten, and there:", err)
	}
}
