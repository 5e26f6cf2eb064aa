package store

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store/database"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, path string) *Store {
	t.Helper()
	s := openEither(t, path)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// change executes a statement.
func change(t testing.TB, s *Store, statement string, args ...any) error {
	return s.db.Write(t.Context(), "change", func(tx *database.Tx) error {
		_, err := tx.ExecOnce(statement, args...)
		return err
	})
}

func TestStoredObjectsAreRestored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "rockpool ?#%.db") // characters that a URL would take apart
	s := open(t, path)
	env := runtime.Environment{ID: "10", Revision: 1, Image: "host", Variables: []runtime.Variable{{Name: "A", Value: "ö"}}}
	runner := runtime.Runner{ID: "r", Environment: env, State: runtime.RunnerIdle, CreatedAt: time.Unix(5, 6).UTC()}
	claim := runtime.Claim{Epoch: 1, Key: "k", ClaimedAt: time.Unix(7, 0).UTC(), Labels: []runtime.Label{{Name: "a", Value: "b"}}}
	x := runtime.Execution{ID: "x", RunnerID: "r", EnvironmentID: "10", Command: []string{"echo", "\x00\n"}, State: runtime.ExecutionPending, Key: "key"}
	for _, err := range []error{
		s.PutEnvironment(t.Context(), env),
		s.PutRunner(t.Context(), runner, []byte("private")),
		s.MarkRunner(t.Context(), "r", claim),
		s.PutRunner(t.Context(), runner, []byte("private 2")), // leaves the claim alone
		s.PutSpentKey(t.Context(), SpentKey{Key: "spent", Input: "i", Runner: "r0", Expires: time.Unix(2000, 0)}, time.Unix(1000, 0)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, added, err := s.AddExecution(t.Context(), x, []byte("start")); err != nil || !added {
		t.Fatal(added, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	var environments []runtime.Environment
	err := s.Environments(t.Context(), func(env runtime.Environment, unreadable error) error {
		environments = append(environments, env)
		return unreadable
	})
	if diff := cmp.Diff([]runtime.Environment{env}, environments); err != nil || diff != "" {
		t.Error(err, diff)
	}
	runner.Claim, runner.State = claim, runtime.RunnerClaimed
	err = s.Runners(t.Context(), func(r runtime.Runner, private []byte, unreadable error) error {
		if diff := cmp.Diff(runner, r); diff != "" || string(private) != "private 2" {
			t.Error(string(private), diff)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	unfinished, err := s.Unfinished(t.Context())
	if diff := cmp.Diff([]Unfinished{{Execution: x, Start: []byte("start")}}, unfinished); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if k, found, err := s.SpentKey(t.Context(), "spent", time.Unix(1999, 0)); err != nil || !found || k.Runner != "r0" {
		t.Error(k, found, err)
	}
	if _, found, err := s.SpentKey(t.Context(), "spent", time.Unix(2001, 0)); err != nil || found {
		t.Error("an expired key was returned", err)
	}
}

func TestKeysAreUsedOnce(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	var group sync.WaitGroup
	var mu sync.Mutex
	first := map[runtime.ExecutionID]int{}
	added := 0
	for i := range 50 {
		group.Go(func() {
			x := runtime.Execution{ID: runtime.ExecutionID(fmt.Sprint(i)), Key: "same", State: runtime.ExecutionPending}
			stored, ok, err := s.AddExecution(t.Context(), x, []byte("start"))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			first[stored.ID]++
			if ok {
				added++
			}
		})
	}
	group.Wait()
	if added != 1 || len(first) != 1 {
		t.Errorf("%d were added, %d different ones returned", added, len(first))
	}
}

func TestExecutionsArePaged(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	for i := range 25 {
		x := runtime.Execution{
			ID: runtime.ExecutionID(fmt.Sprintf("%02d", i)), RunnerID: runtime.RunnerID(fmt.Sprint(i % 2)),
			EnvironmentID: "a", State: runtime.ExecutionPending,
		}
		if i%5 == 0 {
			x.State = runtime.ExecutionFinished
		}
		if _, _, err := s.AddExecution(t.Context(), x, []byte("start")); err != nil {
			t.Fatal(err)
		}
	}
	for newestFirst, want := range map[bool]string{false: "02 04 06 08 12 14 16 18 22 24", true: "24 22 18 16 14 12 08 06 04 02"} {
		var ids []string
		filter := ExecutionFilter{RunnerID: "0", EnvironmentID: "a", States: []runtime.ExecutionState{runtime.ExecutionPending, runtime.ExecutionRunning}, NewestFirst: newestFirst}
		for after := runtime.ExecutionID(""); ; {
			page, err := s.Executions(t.Context(), filter, 5, after)
			if err != nil || page.Total != 10 || len(page.Executions) != 5 {
				t.Fatalf("%+v, %v", page, err)
			}
			for _, x := range page.Executions {
				ids = append(ids, string(x.ID))
			}
			if !page.More {
				break
			}
			after = page.Executions[4].ID
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("newest first %t: %s, want %s", newestFirst, got, want)
		}
	}
	if _, err := s.Execution(t.Context(), "nonesuch"); runtime.CodeOf(err) != runtime.CodeExecutionNotFound {
		t.Errorf("got %v, want EXECUTION_NOT_FOUND", err)
	}
}

// TestPagesEndAtTheirSize also checks that pages continue after unreadable executions.
func TestPagesEndAtTheirSize(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	for i := range 20 {
		x := runtime.Execution{ID: runtime.ExecutionID(fmt.Sprintf("%02d", i)), RunnerID: "r", EnvironmentID: "a", State: runtime.ExecutionFinished, Command: []string{strings.Repeat("x", 10_000)}}
		if _, _, err := s.AddExecution(t.Context(), x, []byte("start")); err != nil {
			t.Fatal(err)
		}
	}
	if err := change(t, s, "UPDATE executions SET value = $1 WHERE id BETWEEN '05' AND '11' OR id = '19'", []byte("none")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name        string
		first, most int
		newestFirst bool
		after       runtime.ExecutionID
		want        string
		more        bool
	}{
		{"first of all", 3, 1 << 20, false, "", "00 01 02", true},
		{"unreadable rows between: skipped", 3, 1 << 20, false, "03", "04 12 13", true},
		{"after unreadable rows", 2, 1 << 20, false, "13", "14 15", true},
		{"unreadable rows at the end", 3, 1 << 20, false, "15", "16 17 18", true},
		{"after the last row", 3, 1 << 20, false, "18", "", false},
		{"newest first", 3, 1 << 20, true, "", "18 17 16", true},
		{"newest first, unreadable rows between: skipped", 9, 1 << 20, true, "13", "12 04 03 02 01 00", false},
		{"bytes of two rows", 10, 25_000, false, "", "00 01", true},
		{"more than there are", 100, 1 << 20, false, "11", "12 13 14 15 16 17 18", false},
	} {
		s.pageBytes = test.most
		page, err := s.Executions(t.Context(), ExecutionFilter{NewestFirst: test.newestFirst}, test.first, test.after)
		var ids []string
		for _, x := range page.Executions {
			ids = append(ids, string(x.ID))
		}
		if got := strings.Join(ids, " "); err != nil || got != test.want || page.More != test.more || page.Total != 20 {
			t.Errorf("%s: %s, more %t, of %d, %v", test.name, got, page.More, page.Total, err)
		}
	}
	s.pageBytes = 1
	if page, err := s.Executions(t.Context(), ExecutionFilter{}, 3, ""); err != nil || len(page.Executions) != 1 || !page.More {
		t.Errorf("an execution that is larger than a page: %+v, %v", page, err)
	}
}

func TestWritesAfterClose(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRunner(context.Background(), "x"); err == nil {
		t.Error("a write after Close succeeded")
	}
}

func BenchmarkMark(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "db"))
	runner := runtime.Runner{ID: "r"}
	if err := s.PutRunner(b.Context(), runner, nil); err != nil {
		b.Fatal(err)
	}
	epoch := 0
	for b.Loop() {
		epoch++
		if err := s.MarkRunner(b.Context(), "r", runtime.Claim{Epoch: epoch}); err != nil {
			b.Fatal(err)
		}
	}
}

// stored returns the ids of all environments.
func stored(t *testing.T, s *Store) []runtime.EnvironmentID {
	t.Helper()
	var ids []runtime.EnvironmentID
	err := s.Environments(t.Context(), func(env runtime.Environment, _ error) error {
		ids = append(ids, env.ID)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestFirstEnvironmentsAreStoredTogether ends a server at any moment of its first start. It must
// leave all of them or none, so that the next start is a first one again.
func TestFirstEnvironmentsAreStoredTogether(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	a, b := runtime.Environment{ID: "a", Revision: 1}, runtime.Environment{ID: "b", Revision: 1}
	if first, err := s.PutFirst(t.Context(), []runtime.Environment{a, b, a}); first || err == nil {
		t.Errorf("where one of them can't be stored: %v, %v", first, err)
	}
	if got := stored(t, s); len(got) != 0 {
		t.Errorf("after a failure %q are stored", got)
	}
	if first, err := s.PutFirst(t.Context(), nil); first || err != nil {
		t.Errorf("without any: %v, %v", first, err)
	}
	if first, err := s.PutFirst(t.Context(), []runtime.Environment{a, b}); !first || err != nil {
		t.Errorf("%v, %v", first, err)
	}
	if first, err := s.PutFirst(t.Context(), []runtime.Environment{{ID: "c", Revision: 1}}); first || err != nil {
		t.Errorf("a second time: %v, %v", first, err)
	}
	if got := stored(t, s); fmt.Sprint(got) != "[a b]" {
		t.Errorf("stored are %q", got)
	}
	// An unreadable row still exists.
	if err := s.DeleteEnvironment(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := change(t, s, "UPDATE environments SET value = $1", []byte("{")); err != nil {
		t.Fatal(err)
	}
	if first, err := s.PutFirst(t.Context(), []runtime.Environment{a}); first || err != nil {
		t.Errorf("beside one that can't be read: %v, %v", first, err)
	}
}
