package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/postgrestest"
	"github.com/rockpool/rockpool/test/wait"
)

// onPostgres names the variable with the URL of the PostgreSQL on which the tests run.
const onPostgres = "ROCKPOOL_TEST_POSTGRES"

// openEither opens the database under test: a file, or a schema of its own in a PostgreSQL.
func openEither(t testing.TB, path string) *Store {
	t.Helper()
	at := os.Getenv(onPostgres)
	if at == "" {
		s, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	schema := fmt.Sprintf("s%x", sha256.Sum256([]byte(path)))[:20]
	if _, err := conn.Exec(t.Context(), "CREATE SCHEMA IF NOT EXISTS "+schema); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return lead(t, at+"?search_path="+url.QueryEscape(schema))
}

func lead(t testing.TB, url string) *Store {
	t.Helper()
	s, err := OpenShared(t.Context(), url)
	if err == nil {
		err = s.Lead(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStoreOnPostgreSQL runs this package's other tests again, except those of SQLite.
func TestStoreOnPostgreSQL(t *testing.T) {
	p := postgrestest.Start(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.timeout=20m",
		"-test.skip=PostgreSQL|TestCheck|TestFullDisk|TestOldDatabase|TestSecondProcess|TestUnreadableTimes|Damage|TestFileShrinks|DatabaseIs|TestOthers")
	cmd.Env = append(os.Environ(), onPostgres+"="+p.URL, "ROCKPOOL_TEST=")
	text, err := cmd.CombinedOutput()
	if ran := bytes.Count(text, []byte("--- PASS")); err != nil || ran < 10 {
		t.Errorf("%v, %d passed:\n%s", err, ran, text)
	}
}

func execution(i int) runtime.Execution {
	return runtime.Execution{ID: runtime.ExecutionID(fmt.Sprintf("x%04d", i)), RunnerID: "r", State: runtime.ExecutionPending, Key: fmt.Sprint("key", i)}
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
	if _, _, err := follower.AddExecution(t.Context(), execution(1), []byte("start")); !errors.Is(err, errFollows) {
		t.Error("one that follows writes:", err)
	}
	if err := follower.Check(t.Context()); err != nil {
		t.Error("one that follows is ill:", err)
	}
	first := lead(t, p.URL)
	defer first.Close()
	if _, _, err := first.AddExecution(t.Context(), execution(1), []byte("start")); err != nil {
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
	if _, _, err := first.AddExecution(t.Context(), execution(2), []byte("start")); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Error("the one that led before writes:", err)
	}
	wait.Receive(t, first.Taken(), "that another leads")
	if err := first.Check(t.Context()); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	unfinished, err := follower.Unfinished(t.Context())
	if err != nil || len(unfinished) != 1 || unfinished[0].Execution.ID != "x0001" {
		t.Error(unfinished, err)
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
	if _, err := Examine(t.Context(), guest); err == nil || !strings.Contains(err.Error(), "user guest may not create tables") {
		t.Error(err)
	}
	p.Kill()
	if _, err := Examine(t.Context(), p.URL); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
}

// TestWritesSurviveAKilledPostgreSQL checks that each write is stored once, and that its caller
// only waits.
func TestWritesSurviveAKilledPostgreSQL(t *testing.T) {
	p := postgrestest.Start(t)
	s := lead(t, p.URL)
	defer s.Close()
	const writers, each = 12, 60
	var group sync.WaitGroup
	var stored atomic.Int64
	for w := range writers {
		group.Go(func() {
			for i := range each {
				x := execution(w*each + i)
				if _, added, err := s.AddExecution(t.Context(), x, []byte("start")); err != nil || !added {
					t.Error(x.ID, added, err)
				}
				if err := s.AppendOutput(t.Context(), "log", int64(w*each+i)<<20, []byte("x")); err != nil {
					t.Error(err)
				}
				if _, err := s.Execution(t.Context(), x.ID); err != nil {
					t.Error("it isn't read:", err)
				}
				stored.Add(1)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	for kills := range int64(4) {
		wait.For(t, "some are stored", func() bool { return stored.Load() >= 1+kills*writers*each/10 })
		p.Kill()
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wait.Receive(t, done, "the writers' end")
	unfinished, err := s.Unfinished(t.Context())
	if err != nil || len(unfinished) != writers*each {
		t.Errorf("%d are stored of %d: %v", len(unfinished), writers*each, err)
	}
	if n, err := p.Query("SELECT count(*) FROM output"); err != nil || strings.TrimSpace(n) != fmt.Sprint(writers*each) {
		t.Error(n, err)
	}
}

// TestUnansweredCommitIsNotRepeatedOnPostgreSQL checks this for a commit that succeeded.
func TestUnansweredCommitIsNotRepeatedOnPostgreSQL(t *testing.T) {
	p := postgrestest.Start(t)
	s := lead(t, p.URL)
	defer s.Close()
	d, done := s.db.(*postgresDB), 0
	results, sent := make([]error, 1), false
	writes := []write{{do: func(tx *transaction) error {
		done++
		_, err := tx.Exec("INSERT INTO restarts (execution, start) VALUES ($1, $2)", fmt.Sprint(done), []byte("x"))
		return err
	}}}
	led := d.led.Load()
	if err := d.attempt(led, writes, results, &sent); err != nil || !sent {
		t.Fatal(err, sent)
	}
	// The caller didn't learn that the transaction was committed.
	if err := d.attempt(led, writes, results, &sent); !errors.Is(err, errCommitted) || done != 1 {
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
	s := lead(t, p.URL)
	defer s.Close()
	for i := range 2 {
		if _, _, err := s.AddExecution(t.Context(), execution(i), []byte("start")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Query("UPDATE leader SET number = number - 1"); err != nil {
		t.Fatal(err)
	}
	if _, added, err := s.AddExecution(t.Context(), execution(2), []byte("start")); !errors.Is(err, errSetBack) {
		t.Error(added, err)
	}
	wait.Receive(t, s.Taken(), "that it must start anew")
}

// TestStalledPostgreSQLDoesNotBlockClose suspends the database's processes.
func TestStalledPostgreSQLDoesNotBlockClose(t *testing.T) {
	p := postgrestest.Start(t)
	s := lead(t, p.URL)
	p.Signal(syscall.SIGSTOP)
	defer p.Signal(syscall.SIGCONT)
	written := make(chan error, 1)
	go func() {
		written <- s.write(t.Context(), "write", func(*transaction) error { return nil })
	}()
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "has stored nothing for") {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := wait.Receive(t, written, "the write's end"); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Error("a write:", err)
	}
}

// TestUnreachablePostgreSQL checks that the store can be closed, and that reads and writes return
// CLUSTER_UNAVAILABLE.
func TestUnreachablePostgreSQL(t *testing.T) {
	p := postgrestest.Start(t)
	s := lead(t, p.URL)
	p.Kill()
	s.reads.again = func(context.Context, time.Duration, error) bool { return false } // else it takes 10 s
	if _, err := s.Execution(t.Context(), "x"); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Error("a read:", err)
	}
	written := make(chan error, 1)
	go func() {
		_, _, err := s.AddExecution(t.Context(), execution(1), []byte("start"))
		written <- err
	}()
	left := errors.New("the caller left")
	ctx, leave := context.WithCancelCause(t.Context())
	appended := make(chan error, 1)
	go func() { appended <- s.AppendAudit(ctx, auditRows(1)) }()
	leave(left) // whether it waits for the writer or for its result
	if err := wait.Receive(t, appended, "the end of entries of the audit log"); !errors.Is(err, left) {
		t.Error("entries of the audit log:", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := wait.Receive(t, written, "the write's end"); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Error("a write:", err)
	}
	if _, err := OpenShared(t.Context(), p.URL); err == nil || !strings.Contains(err.Error(), "open the database at 127.") {
		t.Error(err)
	}
}

// TestOutputInPostgreSQL reads output from every position.
func TestOutputInPostgreSQL(t *testing.T) {
	s := lead(t, postgrestest.Start(t).URL)
	defer s.Close()
	var all []byte
	for i := range 40 {
		piece := bytes.Repeat([]byte{byte(i)}, 1+i*i%97)
		if err := s.AppendOutput(t.Context(), "x", int64(len(all)), piece); err != nil {
			t.Fatal(err)
		}
		all = append(all, piece...)
	}
	if size, err := s.OutputSize(t.Context(), "x"); err != nil || size != int64(len(all)) {
		t.Error(size, err)
	}
	for at := range len(all) + 2 {
		for _, n := range []int{1, 10, 500, 5000} {
			p := make([]byte, n)
			got, err := s.ReadOutput(t.Context(), "x", int64(at), p)
			want := all[min(at, len(all)):min(at+n, len(all))]
			if err != nil || !bytes.Equal(p[:got], want) {
				t.Fatalf("%d bytes at %d: %d, %v", n, at, got, err)
			}
		}
	}
	if _, _, err := s.AddExecution(t.Context(), runtime.Execution{ID: "x", State: runtime.ExecutionPending}, []byte{1}); err != nil {
		t.Fatal(err)
	}
	finished := runtime.Execution{ID: "x", State: runtime.ExecutionFinished}
	finished.Marks.FinishedAt = time.Now()
	if _, err := s.FinishExecution(t.Context(), finished, int64(len(all))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.DeleteExecutions(t.Context(), []runtime.ExecutionID{"x"}, time.Now()), s.MarkOutputRemoved(t.Context(), []runtime.ExecutionID{"x"})); err != nil {
		t.Fatal(err)
	}
	if size, err := s.OutputSize(t.Context(), "x"); err != nil || size != 0 {
		t.Error("deleted output:", size, err)
	}
}
