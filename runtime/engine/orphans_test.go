package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/test/wait"
)

// component returns a component of Health.
func (b *bed) component(t *testing.T, name string) activity.ComponentHealth {
	t.Helper()
	for _, c := range b.Health(asServer(t)).Components {
		if c.Name == name {
			return c
		}
	}
	return activity.ComponentHealth{}
}

func (b *bed) wantOutput(t *testing.T, id runtime.ExecutionID, want string) {
	t.Helper()
	if got, _ := b.events(t, id, ""); got != want {
		t.Errorf("the output is %q, not %q", got, want)
	}
}

// loseDatabase removes the database while no engine runs.
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

// TestOutputUnknownToAnOlderDatabaseIsMoved restores the database from a backup. Output unknown to
// it is kept, and is put back under the newer database.
func TestOutputUnknownToAnOlderDatabaseIsMoved(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	old := b.run(t, r.ID, "echo", "old")
	backup := filepath.Join(t.TempDir(), "db")
	db := b.database(t)
	if _, err := db.Exec("VACUUM INTO ?", backup); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
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
	wait.For(t, "it is counted", func() bool { return strings.Contains(b.component(t, "orphaned output").Message, " 1 logs (1 MiB)") })
	c := b.component(t, "orphaned output")
	if c.Status != activity.HealthDegraded || !strings.Contains(c.Message, filepath.Join(b.dir, "output", "orphaned-")) || !strings.Contains(c.Message, "older backup") {
		t.Errorf("%+v", c)
	}
	b.wantOutput(t, old.ID, "old\n")
	b.stop()
	b.start(t) // the output is kept, and health reports it
	if c := b.component(t, "orphaned output"); len(b.orphaned(t)) != 1 || c.Status != activity.HealthDegraded || !strings.Contains(c.Message, " 1 logs (1 MiB)") {
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

// TestOutputIsMovedAfterTheDatabaseIsLost deletes the whole database.
func TestOutputIsMovedAfterTheDatabaseIsLost(t *testing.T) {
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
	wait.For(t, "all is counted", func() bool { return strings.Contains(b.component(t, "orphaned output").Message, " 10 logs (1 MiB)") })
	c := b.component(t, "orphaned output")
	if c.Status != activity.HealthDegraded || !strings.Contains(c.Message, "the database was new") {
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

// TestUnmovableOrphansAreReported also checks that they don't prevent others from being moved.
func TestUnmovableOrphansAreReported(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	for range 5 {
		b.run(t, r.ID, "echo", "kept")
	}
	b.stop()
	b.loseDatabase(t)
	bad := filepath.Join(b.dir, "output", "!!") // it sorts first, and isn't a directory
	if err := os.WriteFile(bad, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	wait.For(t, "the others are moved away", func() bool { return len(b.orphaned(t)) == 5 })
	wait.For(t, "it is reported", func() bool {
		c := b.component(t, "restore")
		return c.Status == activity.HealthDegraded && strings.Contains(c.Message, bad)
	})
}

// TestRetentionResumesAfterAKill deletes the execution but not its output.
func TestRetentionResumesAfterAKill(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	x, kept := b.run(t, r.ID, "echo", "x"), b.run(t, r.ID, "echo", "kept")
	if err := b.store.DeleteExecutions(asServer(t), []runtime.ExecutionID{x.ID}, time.Now()); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start(t)
	wait.For(t, "it is removed", func() bool {
		left, err := b.store.Removals(asServer(t))
		if err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	})
	if _, err := os.Stat(b.logs.Path(x.ID)); !errors.Is(err, fs.ErrNotExist) || len(b.orphaned(t)) > 0 {
		t.Errorf("what was to be removed is kept: %v, %q", err, b.orphaned(t))
	}
	b.wantOutput(t, kept.ID, "kept\n")
}
