package database

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/postgrestest"
	"github.com/rockpool/rockpool/test/wait"
)

func lead(t testing.TB, url string) *DB {
	t.Helper()
	d, err := OpenShared(t.Context(), url)
	if err == nil {
		err = d.Lead(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestOnlyTheLeaderWritesOnPostgreSQL checks that only the last leader writes, and that others'
// writes fail.
func TestOnlyTheLeaderWritesOnPostgreSQL(t *testing.T) {
	p := postgrestest.Start(t)
	follower, err := OpenShared(t.Context(), p.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	if err := put(t, follower, "x1", nil); !errors.Is(err, errFollows) {
		t.Errorf("one that follows writes: got %v, want %v", err, errFollows)
	}
	if err := follower.Check(t.Context()); err != nil {
		t.Error("one that follows is ill:", err)
	}
	first := lead(t, p.URL)
	defer first.Close()
	if err := put(t, first, "x1", nil); err != nil {
		t.Fatal(err)
	}
	if err := follower.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-first.Taken():
		t.Error("it reports the other leader before any write")
	default:
	}
	if err := put(t, first, "x2", nil); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("the one that led before writes: got %v, want CLUSTER_UNAVAILABLE", err)
	}
	wait.Receive(t, first.Taken(), "that another leads")
	if err := first.Check(t.Context()); !errors.Is(err, ErrTaken) {
		t.Errorf("got %v, want %v", err, ErrTaken)
	}
	var ids string
	if err := follower.QueryRow(t.Context(), "SELECT string_agg(id, ' ') FROM runners").Scan(&ids); err != nil || ids != "x1" {
		t.Errorf("got %q, %v; want x1", ids, err)
	}
	one, err := first.Secret(t.Context(), "name", []byte("first"))
	other, err2 := follower.Secret(t.Context(), "name", []byte("second"))
	if err := errors.Join(err, err2); err != nil || string(one) != "first" || string(other) != "first" {
		t.Errorf("%q, %q, %v", one, other, err)
	}
}

func TestExaminePostgreSQL(t *testing.T) {
	p := postgrestest.Start(t)
	if version, err := Examine(t.Context(), p.URL); err != nil || version == "" {
		t.Error(version, err)
	}
	if _, err := p.Query("CREATE USER guest"); err != nil {
		t.Fatal(err)
	}
	guest := strings.Replace(p.URL, "rockpool@", "guest@", 1)
	if _, err := Examine(t.Context(), guest); err == nil || !strings.Contains(err.Error(), "guest") {
		t.Errorf("got %v, want an error that names guest", err)
	}
	p.Kill()
	if _, err := Examine(t.Context(), p.URL); err == nil || !strings.Contains(err.Error(), syscall.ECONNREFUSED.Error()) {
		t.Errorf("got %v, want %v", err, syscall.ECONNREFUSED)
	}
}

// TestUnansweredCommitIsNotRepeatedOnPostgreSQL checks this for a commit that succeeded.
func TestUnansweredCommitIsNotRepeatedOnPostgreSQL(t *testing.T) {
	p := postgrestest.Start(t)
	d := lead(t, p.URL)
	defer d.Close()
	at, done := d.backend.(*postgresDB), 0
	results, sent := make([]error, 1), false
	writes := []write{{do: func(tx *Tx) error {
		done++
		_, err := tx.Exec("INSERT INTO restarts (execution, start) VALUES ($1, $2)", fmt.Sprint(done), []byte("x"))
		return err
	}}}
	mine := at.leadership.Load()
	if err := at.attempt(mine, writes, results, &sent); err != nil || !sent {
		t.Fatal(err, sent)
	}
	// The caller didn't learn that the transaction was committed.
	if err := at.attempt(mine, writes, results, &sent); !errors.Is(err, errCommitted) || done != 1 {
		t.Errorf("%v; it was done %d times", err, done)
	}
	if n, err := p.Query("SELECT count(*) FROM restarts"); err != nil || n != "1\n" {
		t.Error(n, err)
	}
}

// TestResetPostgreSQLIsDetected checks that lost commits aren't considered stored, and that nothing
// more is written.
func TestResetPostgreSQLIsDetected(t *testing.T) {
	p := postgrestest.Start(t)
	d := lead(t, p.URL)
	defer d.Close()
	for i := range 2 {
		if err := put(t, d, fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Query("UPDATE leader SET number = number - 1"); err != nil {
		t.Fatal(err)
	}
	if err := put(t, d, "2", nil); !errors.Is(err, errSetBack) {
		t.Errorf("got %v, want %v", err, errSetBack)
	}
	wait.Receive(t, d.Taken(), "that it must start anew")
}

// TestStalledPostgreSQLDoesNotBlockClose suspends the database's processes.
func TestStalledPostgreSQLDoesNotBlockClose(t *testing.T) {
	p := postgrestest.Start(t)
	d := lead(t, p.URL)
	p.Signal(syscall.SIGSTOP)
	defer p.Signal(syscall.SIGCONT)
	written := make(chan error, 1)
	go func() {
		written <- d.Write(t.Context(), "write", func(*Tx) error { return nil })
	}()
	if err := d.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "4 s") {
		t.Errorf("got %v, want a stall of 4 s", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := wait.Receive(t, written, "the write's end"); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("a write: got %v, want CLUSTER_UNAVAILABLE", err)
	}
}

// TestUnreachablePostgreSQL checks that the store can be closed, and that reads and writes return
// CLUSTER_UNAVAILABLE.
func TestUnreachablePostgreSQL(t *testing.T) {
	p := postgrestest.Start(t)
	d := lead(t, p.URL)
	p.Kill()
	d.again = func(context.Context, time.Duration, error) bool { return false } // else it takes 10 s
	var one int
	if err := Wrap(d.QueryRow(t.Context(), "SELECT 1").Scan(&one), "read"); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("a read: got %v, want CLUSTER_UNAVAILABLE", err)
	}
	written := make(chan error, 1)
	go func() { written <- put(t, d, "r", nil) }()
	left := errors.New("the caller left")
	ctx, leave := context.WithCancelCause(t.Context())
	appended := make(chan error, 1)
	go func() { appended <- d.Rewrite(ctx, "append", func(*Tx) error { return nil }) }()
	leave(left) // whether it waits for the writer or for its result
	if err := wait.Receive(t, appended, "the end of a repeatable write"); !errors.Is(err, left) {
		t.Errorf("a repeatable write: got %v, want %v", err, left)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := wait.Receive(t, written, "the write's end"); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("a write: got %v, want CLUSTER_UNAVAILABLE", err)
	}
	if _, err := OpenShared(t.Context(), p.URL); err == nil || !strings.Contains(err.Error(), "127.") {
		t.Errorf("got %v, want an error that names the address", err)
	}
}
