package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// TestOnlyFinishedExecutionsAreDeleted checks that their keys stay spent.
func TestOnlyFinishedExecutionsAreDeleted(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	ended := time.Date(2026, 11, 21, 1, 2, 3, 456, time.FixedZone("", 3600))
	for _, id := range []runtime.ExecutionID{"FINISHED", "RUNNING"} {
		x := runtime.Execution{ID: id, RunnerID: "r", State: runtime.ExecutionRunning, Key: string(id), Input: "input"}
		if _, _, err := s.AddExecution(t.Context(), x, []byte("start")); err != nil {
			t.Fatal(err)
		}
		if id == "FINISHED" {
			x.State, x.Timestamps.FinishedAt = runtime.ExecutionFinished, ended
			if _, err := s.FinishExecution(t.Context(), x, 1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	oldest, err := s.Oldest(t.Context(), 10)
	if err != nil || len(oldest) != 1 || oldest[0].ID != "FINISHED" || oldest[0].At.Unix() != ended.Unix() || oldest[0].Bytes < 1000 {
		t.Fatal(oldest, err)
	}
	if sum, err := s.FinishedBytes(t.Context()); err != nil || sum != oldest[0].Bytes {
		t.Error(sum, err)
	}
	if unfinished, err := s.Unfinished(t.Context()); err != nil || len(unfinished) != 1 || unfinished[0].Execution.ID != "RUNNING" {
		t.Error(unfinished, err)
	}
	if err := s.DeleteExecutions(t.Context(), []runtime.ExecutionID{"FINISHED", "RUNNING"}, time.Unix(2000, 0)); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[runtime.ExecutionID]bool{"FINISHED": false, "RUNNING": true} {
		if there, err := s.HasExecution(t.Context(), id); err != nil || there != want {
			t.Error(id, there, err)
		}
	}
	if k, found, err := s.SpentKey(t.Context(), "FINISHED", time.Unix(1999, 0)); err != nil || !found || k.Input != "input" || k.Runner != "r" {
		t.Error(k, found, err)
	}
	if _, found, err := s.SpentKey(t.Context(), "RUNNING", time.Unix(1999, 0)); err != nil || found {
		t.Error("the key of one that runs is spent", err)
	}
}

// TestFullDisk checks that Check reports a full disk, and notices without a restart that there is
// room again.
func TestFullDisk(t *testing.T) {
	need.Sandboxes(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatalf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { // after the store's
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, filepath.Join(dir, "db"))
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	for err == nil {
		_, err = ballast.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v, want %v", err, unix.ENOSPC)
	}
	runner := runtime.Runner{Message: strings.Repeat("x", 10_000)}
	for i := range 1000 {
		runner.ID = runtime.RunnerID(fmt.Sprint(i))
		if err = s.PutRunner(t.Context(), runner, nil); err != nil {
			break
		}
	}
	if runtime.CodeOf(err) != runtime.CodeStorageFull {
		t.Fatalf("a full disk is %v, want STORAGE_FULL", err)
	}
	wait.For(t, "Check says that the disk is full", func() bool { return runtime.CodeOf(s.Check(t.Context())) == runtime.CodeStorageFull })
	if err := errors.Join(ballast.Close(), os.Remove(ballast.Name())); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "Check says that there is room", func() bool { return s.Check(t.Context()) == nil })
	if err := s.PutRunner(t.Context(), runner, nil); err != nil {
		t.Error(err)
	}
}

// TestOfTenant counts the objects of one tenant only.
func TestOfTenant(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	end := time.Unix(1000, 0)
	add := func(id runtime.ExecutionID, tenant runtime.TenantID, finished time.Time) {
		t.Helper()
		x := runtime.Execution{ID: id, RunnerID: "r", Tenant: tenant, State: runtime.ExecutionRunning}
		if _, _, err := s.AddExecution(t.Context(), x, []byte("start")); err != nil {
			t.Fatal(err)
		}
		if finished.IsZero() {
			return
		}
		x.State, x.Timestamps.FinishedAt = runtime.ExecutionFinished, finished
		if _, err := s.FinishExecution(t.Context(), x, 1); err != nil {
			t.Fatal(err)
		}
	}
	add("1", "physics", end)
	add("2", "physics", end.Add(-time.Hour))
	add("3", "physics", time.Time{})
	add("4", "chemistry", end.Add(time.Hour))
	if _, _, err := s.AddBatch(t.Context(), runtime.Batch{ID: "b", RunnerID: "r", Tenant: "physics"}, []byte("start"), nil); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[runtime.TenantID]TenantsRest{
		"physics": {3, 2, end}, "chemistry": {1, 0, end.Add(time.Hour)}, "": {0, 0, time.UnixMilli(0)},
	} {
		if rest, err := s.OfTenant(t.Context(), tenant); err != nil || rest != want {
			t.Errorf("%s: %+v %v", tenant, rest, err)
		}
	}
}

// TestForgetSpentKeys deletes only keys with the prefix.
func TestForgetSpentKeys(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "rockpool.db"))
	keys := map[string]bool{"tenant/a_/claim/k": false, "tenant/a_/start/ö": false, "tenant/ab/claim/k": true, "tenant/A_/claim/k": true, "claim/k": true}
	for key := range keys {
		if err := s.PutSpentKey(t.Context(), SpentKey{Key: key, Expires: time.Unix(2000, 0)}, time.Unix(1000, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ForgetSpentKeys(t.Context(), "tenant/a_/"); err != nil {
		t.Fatal(err)
	}
	for key, stays := range keys {
		if _, found, err := s.SpentKey(t.Context(), key, time.Unix(1001, 0)); err != nil || found != stays {
			t.Errorf("%s: %v, %v", key, found, err)
		}
	}
}
