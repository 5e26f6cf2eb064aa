package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local/sandbox/sandboxtest"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// Slow: it starts dozens of servers with real runners, kills many of them, and awaits what the next one takes over.

// The tests named TestE2E… run real programs in real sandboxes, through the
// API. Most share one server in this process, which make test-race runs under the
// race detector. Those that kill or weigh a server start bin/rockpool.

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "doctor" { // which starts itself, in another network namespace
		os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	code := m.Run()
	shared.stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// e2eCgroups is the cgroup below which this process's runners are.
var e2eCgroups = fmt.Sprintf("rockpool/e2e-%d", os.Getpid())

var shared sharedServer

type sharedServer struct {
	once  sync.Once
	bed   bed
	srv   *server.Server
	log   keptLog
	err   error
	end   context.CancelFunc
	ended chan error
}

// A bed is a server and a client of it.
type bed struct {
	*client.Client
	url    string
	data   string
	groups string // "": e2eCgroups
}

// e2e returns the server that tests share; it has the first environments.
func e2e(t testing.TB) bed {
	t.Helper()
	need.Sandboxes(t)
	shared.once.Do(func() { shared.err = shared.start() })
	if shared.err != nil {
		t.Fatalf("the server for the tests doesn't start: %v\n%s", shared.err, shared.log.String())
	}
	explain(t, &shared.log)
	t.Cleanup(func() { shared.bed.askEvents(t) })
	return shared.bed
}

// testSettings are those of a server for tests, whose runners end with it.
func testSettings(data, cgroups string) config.Config {
	c := config.Default()
	c.Listen, c.Data, c.CgroupParent, c.OnStop = "127.0.0.1:0", data, cgroups, config.StopRemoves
	c.AlertTimeout, c.Disk.Read = 1, 0
	return c
}

func (s *sharedServer) start() error {
	data, err := os.MkdirTemp("", "rockpool-e2e-")
	if err != nil {
		return err
	}
	settings := testSettings(data, e2eCgroups)
	if err := settings.Check(); err != nil {
		return err
	}
	srv := server.New(settings, s.log.logger())
	srv.First = server.FirstEnvironments
	if err := srv.Open(context.Background()); err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	s.srv = srv
	s.end, s.ended = end, make(chan error, 1)
	go func() { s.ended <- srv.Run(ctx) }()
	<-srv.Engine.Restored()
	s.bed = bed{Client: client.New(srv.URL()), url: srv.URL(), data: data}
	return nil
}

func (s *sharedServer) stop() {
	if s.end == nil {
		return
	}
	s.end()
	err := <-s.ended
	s.bed.CloseIdle()
	if left := leftovers(s.bed.data, e2eCgroups); err != nil || len(left) > 0 {
		fmt.Fprintf(os.Stderr, "the shared server ended with %v and left %q\n", err, left)
		os.Exit(1)
	}
	_ = os.RemoveAll(s.bed.data)
}

// leftovers returns the processes, mounts and cgroups that a server with this
// data directory and cgroup has, or left.
func leftovers(data, cgroups string) []string {
	var left []string
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroups + "/*")
	more, _ := filepath.Glob("/sys/fs/cgroup/" + cgroups + "/*")
	for _, path := range append(groups, more...) {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			left = append(left, "cgroup "+path)
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, data) {
			left = append(left, "mount "+line)
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, path := range processes {
		if text, _ := os.ReadFile(path); sandboxtest.Within(string(text), cgroups) {
			left = append(left, "process "+path)
		}
	}
	slots, _ := filepath.Glob("/run/rockpool/uids/*")
	for _, path := range slots {
		if holder, err := os.Readlink(path); err == nil && strings.HasPrefix(holder, data+"/") {
			left = append(left, "uid range "+path)
		}
	}
	_ = filepath.WalkDir(filepath.Join(data, "local", "runners"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && filepath.Base(filepath.Dir(path)) == "runners" {
			left = append(left, "directory "+path)
		}
		return nil
	})
	return left
}

// thorough returns how often a test repeats something: many times where the run has
// time for that, as make test-chaos does.
func thorough(few, many int) int {
	if need.Provides("chaos") {
		return many
	}
	return few
}

type object = map[string]any

// call sends an operation that must succeed.
func (b bed) call(t testing.TB, query string, variables object, into any) {
	t.Helper()
	if err := b.Ask(t.Context(), query, variables, into); err != nil {
		t.Fatalf("%s\n%v", query, err)
	}
}

// refused sends an operation that must fail with this code and field.
func (b bed) refused(t testing.TB, query string, variables object, code runtime.Code, field string) {
	t.Helper()
	var e *client.Error
	if err := b.Ask(t.Context(), query, variables, nil); !errors.As(err, &e) || e.Extensions.Code != code || e.Extensions.Field != field {
		t.Errorf("%v: error %v, want %s for %q", variables, err, code, field)
	}
}

// claim claims a runner, which is released at the test's end.
func (b bed) claim(t testing.TB, environment string) string {
	t.Helper()
	id := b.claimLoosely(t, environment)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		if err := b.Ask(ctx, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": id}, nil); err != nil {
			t.Error(err)
		}
	})
	return id
}

// put creates an environment for a test, and deletes it at its end.
func (b bed) put(t testing.TB, input object) {
	t.Helper()
	b.call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": input}, nil)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		err := b.Ask(ctx, `mutation($id: ID!) { deleteEnvironment(input: {id: $id, endClaimed: true}) { deleted } }`, object{"id": input["id"]}, nil)
		if err != nil {
			t.Error(err)
		}
	})
}

// A result is an execution that has ended, with all of its output.
type result struct {
	ID, State, Outcome, Signal, GoneReason, Message string
	ExitCode                                        *int
	Usage                                           struct {
		WallMs, OutputBytes     int64
		PeakProcesses           *int
		BytesRead, BytesWritten *int64
	}
	Output struct {
		End    bool
		Chunks []struct {
			Stream string
			Text   string
			Base64 []byte
		}
	}
}

func (r result) stream(name string) string {
	var all []byte
	for _, c := range r.Output.Chunks {
		if c.Stream == name {
			all = append(all, c.Base64...)
		}
	}
	return string(all)
}

func (b bed) start(t testing.TB, input object) string {
	t.Helper()
	var out struct {
		StartExecution struct{ Execution struct{ ID string } }
	}
	b.call(t, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, object{"in": input}, &out)
	return out.StartExecution.Execution.ID
}

// await returns an execution's end.
func (b bed) await(t testing.TB, execution string) result {
	t.Helper()
	var out struct{ Execution result }
	wait.For(t, "the end of execution "+execution, func() bool {
		b.call(t, `query($id: ID!) { execution(id: $id, waitFor: 60) {
			id state outcome exitCode signal goneReason message usage { wallMs outputBytes peakProcesses bytesRead bytesWritten }
			output { end chunks { stream text base64 } } } }`, object{"id": execution}, &out)
		return out.Execution.State == "FINISHED"
	})
	return out.Execution
}

// run starts what input says and returns its end.
func (b bed) run(t testing.TB, input object) result {
	t.Helper()
	return b.await(t, b.start(t, input))
}

func (b bed) shell(t testing.TB, runner, script string) result {
	t.Helper()
	return b.run(t, object{"runnerId": runner, "shell": script})
}

const eventsSubscription = `subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) {
	__typename cursor
	... on ExecutionOutput { stream base64 }
	... on ExecutionOutputLost { bytes reason }
	... on ExecutionFinished { execution { outcome exitCode signal message } } } }`

// An executionEvent is what tests ask of each event.
type executionEvent struct {
	Type      string `json:"__typename"`
	Cursor    string
	Stream    string
	Base64    []byte
	Bytes     int64
	Reason    string
	Execution ending
}

// An ending is how an execution ended.
type ending struct {
	Outcome  string
	ExitCode int
}

func (e *executionEvent) decode(data json.RawMessage) error {
	var out struct{ ExecutionEvents *executionEvent }
	out.ExecutionEvents = e
	return json.Unmarshal(data, &out)
}

// follow subscribes once, until the end or the first error.
func (b bed) follow(ctx context.Context, execution string, after *string, each func(executionEvent)) error {
	operation := client.Request{Query: eventsSubscription, Variables: object{"id": execution, "after": after}}
	return b.Subscribe(ctx, operation, func(data json.RawMessage) error {
		var event executionEvent
		if err := event.decode(data); err != nil {
			return err
		}
		each(event)
		return nil
	})
}
