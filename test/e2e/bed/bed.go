// Package bed starts servers for the end-to-end tests, and uses them as clients do. The
// tests of a package share one server in their own process, which make test-race runs under
// the race detector; those that kill or weigh a server start bin/rockpool. Run make build first.
package bed

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

// Main runs a package's tests. Afterwards it stops the shared server, and fails where
// that or a goroutine is left.
func Main(m *testing.M) {
	code := m.Run()
	SharedServer.stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Cgroups is the cgroup below which this process's runners are.
var Cgroups = fmt.Sprintf("rockpool/e2e-%d", os.Getpid())

// SharedServer is the server that [Open] returns.
var SharedServer sharedServer

type sharedServer struct {
	once   sync.Once
	bed    Bed
	Server *server.Server
	Log    KeptLog
	err    error
	end    context.CancelFunc
	ended  chan error
}

// A Bed is a server and a client of it.
type Bed struct {
	*client.Client
	Address string
	Data    string
	Groups  string // "": Cgroups
}

// Open returns the server that tests share; it has the first environments.
func Open(t testing.TB) Bed {
	t.Helper()
	need.Sandboxes(t)
	SharedServer.once.Do(func() { SharedServer.err = SharedServer.start() })
	if SharedServer.err != nil {
		t.Fatalf("the server for the tests doesn't start: %v\n%s", SharedServer.err, SharedServer.Log.String())
	}
	Explain(t, &SharedServer.Log)
	t.Cleanup(func() { SharedServer.bed.AskEvents(t) })
	return SharedServer.bed
}

// Settings are those of a server for tests, whose runners end with it.
func Settings(data, cgroups string) config.Config {
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
	settings := Settings(data, Cgroups)
	if err := settings.Check(); err != nil {
		return err
	}
	srv := server.New(settings, s.Log.Logger())
	srv.First = server.FirstEnvironments
	if err := srv.Open(context.Background()); err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	s.Server = srv
	s.end, s.ended = end, make(chan error, 1)
	go func() { s.ended <- srv.Run(ctx) }()
	<-srv.Engine.Restored()
	s.bed = Bed{Client: client.New(srv.URL()), Address: srv.URL(), Data: data}
	return nil
}

func (s *sharedServer) stop() {
	if s.end == nil {
		return
	}
	s.end()
	err := <-s.ended
	s.bed.CloseIdle()
	if left := Leftovers(s.bed.Data, Cgroups); err != nil || len(left) > 0 {
		fmt.Fprintf(os.Stderr, "the shared server ended with %v and left %q\n", err, left)
		os.Exit(1)
	}
	_ = os.RemoveAll(s.bed.Data)
}

// Leftovers returns the processes, mounts and cgroups that a server with this
// data directory and cgroup has, or left.
func Leftovers(data, cgroups string) []string {
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

// Thorough returns how often a test repeats something: many times where the run has
// time for that, as make test-chaos does.
func Thorough(few, many int) int {
	if need.Provides("chaos") {
		return many
	}
	return few
}

type object = map[string]any

// Call sends an operation that must succeed.
func (b Bed) Call(t testing.TB, query string, variables object, into any) {
	t.Helper()
	if err := b.Ask(t.Context(), query, variables, into); err != nil {
		t.Fatalf("%s\n%v", query, err)
	}
}

// Refused sends an operation that must fail with this code and field.
func (b Bed) Refused(t testing.TB, query string, variables object, code runtime.Code, field string) {
	t.Helper()
	var e *client.Error
	if err := b.Ask(t.Context(), query, variables, nil); !errors.As(err, &e) || e.Extensions.Code != code || e.Extensions.Field != field {
		t.Errorf("%v: error %v, want %s for %q", variables, err, code, field)
	}
}

// Claim claims a runner, which is released at the test's end.
func (b Bed) Claim(t testing.TB, environment string) string {
	t.Helper()
	id := b.ClaimLoosely(t, environment)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		if err := b.Ask(ctx, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": id}, nil); err != nil {
			t.Error(err)
		}
	})
	return id
}

// Put creates an environment for a test, and deletes it at its end.
func (b Bed) Put(t testing.TB, input object) {
	t.Helper()
	b.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": input}, nil)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		err := b.Ask(ctx, `mutation($id: ID!) { deleteEnvironment(input: {id: $id, endClaimed: true}) { deleted } }`, object{"id": input["id"]}, nil)
		if err != nil {
			t.Error(err)
		}
	})
}

// A Result is an execution that has ended, with all of its output.
type Result struct {
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

// Stream returns what a stream had: STDOUT or STDERR.
func (r Result) Stream(name string) string {
	var all []byte
	for _, c := range r.Output.Chunks {
		if c.Stream == name {
			all = append(all, c.Base64...)
		}
	}
	return string(all)
}

// Start starts an execution and returns its id.
func (b Bed) Start(t testing.TB, input object) string {
	t.Helper()
	var out struct {
		StartExecution struct{ Execution struct{ ID string } }
	}
	b.Call(t, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, object{"in": input}, &out)
	return out.StartExecution.Execution.ID
}

// Await returns an execution's end.
func (b Bed) Await(t testing.TB, execution string) Result {
	t.Helper()
	var out struct{ Execution Result }
	wait.For(t, "the end of execution "+execution, func() bool {
		b.Call(t, `query($id: ID!) { execution(id: $id, waitFor: 60) {
			id state outcome exitCode signal goneReason message usage { wallMs outputBytes peakProcesses bytesRead bytesWritten }
			output { end chunks { stream text base64 } } } }`, object{"id": execution}, &out)
		return out.Execution.State == "FINISHED"
	})
	return out.Execution
}

// Run starts what input says and returns its end.
func (b Bed) Run(t testing.TB, input object) Result {
	t.Helper()
	return b.Await(t, b.Start(t, input))
}

// Shell runs a script in a runner to its end.
func (b Bed) Shell(t testing.TB, runner, script string) Result {
	t.Helper()
	return b.Run(t, object{"runnerId": runner, "shell": script})
}

const eventsSubscription = `subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) {
	__typename cursor
	... on ExecutionOutput { stream base64 }
	... on ExecutionOutputLost { bytes reason }
	... on ExecutionFinished { execution { outcome exitCode signal message } } } }`

// An ExecutionEvent is what tests ask of each event.
type ExecutionEvent struct {
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

func (e *ExecutionEvent) decode(data json.RawMessage) error {
	var out struct{ ExecutionEvents *ExecutionEvent }
	out.ExecutionEvents = e
	return json.Unmarshal(data, &out)
}

// Follow subscribes once, until the end or the first error.
func (b Bed) Follow(ctx context.Context, execution string, after *string, each func(ExecutionEvent)) error {
	operation := client.Request{Query: eventsSubscription, Variables: object{"id": execution, "after": after}}
	return b.Subscribe(ctx, operation, func(data json.RawMessage) error {
		var event ExecutionEvent
		if err := event.decode(data); err != nil {
			return err
		}
		each(event)
		return nil
	})
}

// Cycle is all that a client does with a runner, cut short: it claims, uploads,
// runs, watches, cancels while the program runs, and releases.
func (b Bed) Cycle(ctx context.Context, i int) error {
	var claimed struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	if err := b.Ask(ctx, `mutation { claimRunner(input: {environmentId: "endurance", waitFor: 120}) { runner { id } } }`, nil, &claimed); err != nil {
		return err
	}
	runner := claimed.ClaimRunner.Runner.ID
	text := fmt.Sprintf("cycle %d\n", i)
	var err error
	if i/2%2 == 0 {
		err = b.Ask(ctx, `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`,
			object{"in": object{"runnerId": runner, "write": []object{{"path": "file", "text": text}}}}, nil)
	} else { // as a multipart request
		err = b.Upload(ctx, `mutation($runner: ID!, $file: Upload!) { uploadFile(runnerId: $runner, path: "file", file: $file) { file { size } } }`,
			object{"runner": runner}, -1, strings.NewReader(text), nil)
	}
	if err != nil {
		return err
	}
	var started struct {
		StartExecution struct{ Execution struct{ ID string } }
	}
	if err := b.Ask(ctx, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`,
		object{"in": object{"runnerId": runner, "shell": "cat file; sleep 100 & exec sleep 100", "stdin": true}}, &started); err != nil {
		return err
	}
	execution := started.StartExecution.Execution.ID
	watching, leave := context.WithCancel(ctx)
	defer leave()
	printed := ""
	err = b.Follow(watching, execution, nil, func(e ExecutionEvent) {
		if printed += string(e.Base64); printed == text && i%2 == 0 {
			leave()
		} else if printed == text {
			go func() { // and watches to the end
				_ = b.Ask(ctx, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": execution}, nil)
			}()
		}
	})
	if err != nil && watching.Err() == nil || printed != text {
		return fmt.Errorf("printed %q: %w", printed, errors.Join(err, errors.New("not all was seen")))
	}
	if err := b.Ask(ctx, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": execution}, nil); err != nil {
		return err
	}
	return b.Ask(ctx, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
}
