package store

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/postgrestest"
	"github.com/rockpool/rockpool/test/wait"
)

// onPostgres names the variable with the URL of the PostgreSQL on which the tests run.
const onPostgres = "ROCKPOOL_TEST_POSTGRES"

// locked keeps others from writing to the database that openEither opened, until unlock is called.
func locked(t testing.TB, path string) (unlock func()) {
	t.Helper()
	kind, source, statement := "sqlite", "file:"+path+"?_txlock=immediate", "SELECT 1"
	if at := os.Getenv(onPostgres); at != "" {
		kind, source, statement = "pgx", at+"?search_path="+url.QueryEscape(schemaOf(path)), "SELECT epoch FROM leader FOR UPDATE"
	}
	db, err := sql.Open(kind, source)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err == nil {
		_, err = tx.Exec(statement)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(tx.Rollback(), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// schemaOf returns the name of a schema for a path.
func schemaOf(path string) string { return fmt.Sprintf("s%x", sha256.Sum256([]byte(path)))[:20] }

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
	schema := schemaOf(path)
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
		"-test.skip=PostgreSQL|TestFullDisk|TestUnreadableTimes|TestFileShrinks")
	cmd.Env = append(os.Environ(), onPostgres+"="+p.URL, "ROCKPOOL_TEST=")
	text, err := cmd.CombinedOutput()
	if ran := bytes.Count(text, []byte("--- PASS")); err != nil || ran < 10 {
		t.Errorf("%v, %d passed:\n%s", err, ran, text)
	}
}

func execution(i int) runtime.Execution {
	return runtime.Execution{ID: runtime.ExecutionID(fmt.Sprintf("x%04d", i)), RunnerID: "r", State: runtime.ExecutionPending, Key: fmt.Sprint("key", i)}
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
	finished.Timestamps.FinishedAt = time.Now()
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

// TestPagesOnPostgreSQLAreReadInRounds checks that PostgreSQL sends no more rows than a round has, although
// the page has room for one.
func TestPagesOnPostgreSQLAreReadInRounds(t *testing.T) {
	const each, rows = 64 << 10, 4 * roundRows
	p := postgrestest.Start(t)
	sent := relayed(t, p)
	s := lead(t, sent.url)
	defer s.Close()
	s.pageBytes = 1
	command, value := []string{strings.Repeat("x", each)}, bytes.Repeat([]byte("x"), each)
	b := runtime.Batch{ID: "b", CaseCount: rows}
	addBatch(t, s, b, make([]string, rows)...)
	for i := range rows {
		x := execution(i)
		x.Command, x.Batch = command, &runtime.BatchPosition{ID: b.ID, Case: i}
		if _, _, err := s.AddExecution(t.Context(), x, []byte("start")); err != nil {
			t.Fatal(err)
		}
		if err := s.AppendAudit(t.Context(), []AuditRow{{ID: string(numbered(fmt.Sprint(i))), At: searchBegan, Value: value}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, list := range map[string]func() (read int, err error){
		"executions": func() (int, error) {
			page, err := s.Executions(t.Context(), ExecutionFilter{}, 1000, "")
			return len(page.Executions), err
		},
		"cases": func() (int, error) {
			all, _, err := s.BatchExecutions(t.Context(), b, 0, rows)
			return len(all), err
		},
		"audit log": func() (int, error) {
			all, _, err := s.Audit(t.Context(), AuditFilter{}, 1000, "")
			return len(all), err
		},
	} {
		before := sent.bytes.Load()
		read, err := list()
		if err != nil || read != 1 {
			t.Errorf("%s: %d records, want 1: %v", name, read, err)
		}
		if got := sent.bytes.Load() - before; got > 2*roundRows*each {
			t.Errorf("%s: PostgreSQL sent %d KiB for a page of one record, want at most %d", name, got>>10, 2*roundRows*each>>10)
		}
	}
}

// A relay passes connections on, and counts the bytes that the server sends.
type relay struct {
	url   string
	bytes atomic.Int64
}

// relayed returns a relay to a PostgreSQL, until the test's end.
func relayed(t *testing.T, p *postgrestest.Server) *relay {
	t.Helper()
	at, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	target := at.Host
	at.Host = listener.Addr().String()
	r := &relay{url: at.String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go func() {
				_, _ = io.Copy(io.MultiWriter(client, r), server)
				_ = client.Close()
			}()
		}
	}()
	return r
}

// Write counts bytes.
func (r *relay) Write(p []byte) (int, error) {
	r.bytes.Add(int64(len(p)))
	return len(p), nil
}
