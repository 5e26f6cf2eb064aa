package store

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/runtime"
)

func addBatch(t *testing.T, s *Store, b runtime.Batch, steps ...string) {
	t.Helper()
	var all []BatchStep
	for _, step := range steps {
		all = append(all, BatchStep{Value: []byte(step), Expected: bytes.Repeat([]byte(step), 20_000)})
	}
	if _, added, err := s.AddBatch(t.Context(), b, []byte("start"), all); err != nil || !added {
		t.Fatal(added, err)
	}
}

// expected reads the expected output of a case of batch b.
func expected(t *testing.T, s *Store, number int) string {
	t.Helper()
	var all []byte
	for piece := make([]byte, 9999); ; {
		n, err := s.ExpectedOutput(t.Context(), runtime.BatchPosition{ID: "b", Case: number}, int64(len(all)), piece)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return string(all)
		}
		all = append(all, piece[:n]...)
	}
}

// execute stores an execution of a batch, and its end.
func execute(t *testing.T, s *Store, id runtime.ExecutionID, batch runtime.BatchID, number int) {
	t.Helper()
	x := runtime.Execution{ID: id, RunnerID: "r", State: runtime.ExecutionPending}
	if batch != "" {
		x.Batch = &runtime.BatchPosition{ID: batch, Case: number}
	}
	if _, _, err := s.AddExecution(t.Context(), x, []byte("start")); err != nil {
		t.Fatal(err)
	}
	x.State, x.Timestamps.FinishedAt = runtime.ExecutionFinished, time.Unix(1000, 0)
	if _, err := s.FinishExecution(t.Context(), x, 0); err != nil {
		t.Fatal(err)
	}
}

// TestUnfinishedBatchIsRestored checks that everything that the next server needs is kept until the
// batch has finished.
func TestUnfinishedBatchIsRestored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	b := runtime.Batch{ID: "b", RunnerID: "r", EnvironmentID: "e", HasBuild: true, CaseCount: 2, State: runtime.BatchRunning, Key: "k", Input: "i", QueuedAt: time.Unix(5, 0).UTC()}
	addBatch(t, s, b, "build", "first", "second")
	if err := s.CancelBatch(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	left, err := s.UnfinishedBatches(t.Context())
	if diff := cmp.Diff([]UnfinishedBatch{{Batch: b, Cancelled: true, Bytes: 11}}, left); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	for number, want := range map[int]string{runtime.BuildCase: "build", 0: "first", 1: "second"} {
		if step, start, err := s.BatchStep(t.Context(), "b", number); err != nil || string(step) != want || string(start) != "start" {
			t.Errorf("%d: %q, %q, %v", number, step, start, err)
		}
		if got := expected(t, s, number); got != strings.Repeat(want, 20_000) {
			t.Errorf("%d: %d bytes of expected output", number, len(got))
		}
	}
	b.State, b.FinishedAt, b.Release = runtime.BatchFinished, time.Unix(6, 0).UTC(), true
	execute(t, s, "x", "b", 0)
	if err := s.FinishBatch(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if released, err := s.Released(t.Context(), "r"); err != nil || !released {
		t.Error(released, err)
	}
	if left, err := s.UnfinishedBatches(t.Context()); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
	if _, _, err := s.BatchStep(t.Context(), "b", 0); err == nil {
		t.Error("the input of a finished batch is kept")
	}
	if got := expected(t, s, 0); got != "" {
		t.Error("the expected output of a finished batch is kept")
	}
	if stored, err := s.Batch(t.Context(), "b"); err != nil || !cmp.Equal(stored, b) {
		t.Error(stored, err)
	}
	found, total, err := s.Batches(t.Context(), BatchFilter{RunnerID: "r", EnvironmentID: "e", NewestFirst: true}, 1, "")
	if err != nil || total != 1 || len(found) != 1 {
		t.Error(found, total, err)
	}
}

// TestBatchKeyIsUsedOnce checks that a key belongs to one batch, and to no execution.
func TestBatchKeyIsUsedOnce(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	b := runtime.Batch{ID: "b", Key: "start/k", Input: "i", CaseCount: 1, QueuedAt: time.Unix(1000, 0)}
	addBatch(t, s, b, "case")
	other := b
	other.ID = "other"
	if stored, added, err := s.AddBatch(t.Context(), other, nil, nil); err != nil || added || stored.ID != "b" {
		t.Error(stored, added, err)
	}
	if k, found, err := s.SpentKey(t.Context(), "start/k", time.Unix(1001, 0)); err != nil || !found || k.Input != "i" {
		t.Error(k, found, err)
	}
	if err := s.DropBatch(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if _, found, err := s.SpentKey(t.Context(), "start/k", time.Unix(1001, 0)); err != nil || found {
		t.Error("the key of a batch that didn't begin is spent", err)
	}
	if _, err := s.Batch(t.Context(), "b"); runtime.CodeOf(err) != runtime.CodeBatchNotFound {
		t.Errorf("got %v, want BATCH_NOT_FOUND", err)
	}
}

// TestBatchIsDeletedWithItsExecutions checks that a batch is kept while it runs, and is deleted
// with its last execution.
func TestBatchIsDeletedWithItsExecutions(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	b := runtime.Batch{ID: "b", Key: "start/k", Input: "i", CaseCount: 2}
	addBatch(t, s, b, "first", "second")
	execute(t, s, "x0", "b", 0)
	execute(t, s, "x1", "b", 1)
	execute(t, s, "alone", "", 0)
	if err := s.DropBatch(t.Context(), b); err != nil { // it has begun
		t.Fatal(err)
	}
	oldest := func() (ids []runtime.ExecutionID) {
		all, err := s.Oldest(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			ids = append(ids, f.ID)
		}
		return ids
	}
	if got := oldest(); !cmp.Equal(got, []runtime.ExecutionID{"alone"}) {
		t.Error("to be collected:", got)
	}
	b.State, b.FinishedAt = runtime.BatchFinished, time.Unix(6, 0)
	if err := s.FinishBatch(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if got := oldest(); len(got) != 3 {
		t.Error("to be collected:", got)
	}
	if xs, until, err := s.BatchExecutions(t.Context(), b, 1, 2); err != nil || len(xs) != 1 || xs[1].ID != "x1" || until != 2 {
		t.Error(xs, until, err)
	}
	s.pageBytes = 1
	if xs, until, err := s.BatchExecutions(t.Context(), b, 0, 2); err != nil || len(xs) != 1 || xs[0].ID != "x0" || until != 1 {
		t.Error("a page that has room for one:", xs, until, err)
	}
	forget := func(id runtime.ExecutionID) {
		if err := s.DeleteExecutions(t.Context(), []runtime.ExecutionID{id}, time.Unix(2000, 0)); err != nil {
			t.Fatal(err)
		}
	}
	forget("x0")
	if ids, err := s.BatchExecutionIDs(t.Context(), "b"); err != nil || !cmp.Equal(ids, map[int]runtime.ExecutionID{1: "x1"}) {
		t.Error(ids, err)
	}
	if _, err := s.Batch(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	forget("x1")
	if _, err := s.Batch(t.Context(), "b"); runtime.CodeOf(err) != runtime.CodeBatchNotFound {
		t.Errorf("got %v, want BATCH_NOT_FOUND", err)
	}
	if k, found, err := s.SpentKey(t.Context(), "start/k", time.Unix(1999, 0)); err != nil || !found || k.Input != "i" {
		t.Error(k, found, err)
	}
}
