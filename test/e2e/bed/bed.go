// Package bed starts servers for the end-to-end tests and uses them as clients do. The tests of a
// package share one server in their own process, so that the race detector sees it: make test-race
// runs those of life. Tests that kill or measure a server start bin/rockpool, so run make build first.
package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// Main runs a package's tests. Afterwards it stops the shared server. It fails if the server left
// something, or if a goroutine is left.
func Main(m *testing.M) {
	code := m.Run()
	SharedServer.stop()
	if err := leaked(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// leaked returns goroutines that don't end. Goleak alone waits only half a second, which may be too
// short on a busy machine.
func leaked() (err error) {
	for end := time.Now().Add(wait.Limit); time.Now().Before(end); {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

// Cgroups is the cgroup above the runners of this process.
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
	Groups  string // cgroup above its runners'; "" means Cgroups
}

// Open returns the server that the package's tests share. It has the first environments.
func Open(t testing.TB) Bed {
	t.Helper()
	need.Sandboxes(t)
	SharedServer.once.Do(func() { SharedServer.err = SharedServer.start() })
	if SharedServer.err != nil {
		t.Fatalf("start the tests' shared server: %v\n%s", SharedServer.err, SharedServer.Log.String())
	}
	Explain(t, &SharedServer.Log)
	t.Cleanup(func() { SharedServer.bed.CollectEvents(t) })
	return SharedServer.bed
}

// Settings returns the settings of a server for tests. Its runners end with it. The caches of languages take a minute
// to make, so all tests of a user share them.
func Settings(data, cgroups string) config.Config {
	c := config.Default()
	c.Listen, c.Data, c.CgroupParent, c.OnStop = "127.0.0.1:0", data, cgroups, config.StopRemoves
	c.AlertTimeout, c.Disk.Read = 1, 0
	c.Caches = filepath.Join(os.TempDir(), fmt.Sprint("rockpool-caches-", os.Geteuid()))
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

// Leftovers returns the processes, mounts and cgroups that belong to a server with this data
// directory and cgroup.
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

// Thorough returns how often a test repeats something: few times, or many in a run that has the
// time, as make test-chaos does. scripts/test finds the tests that call it.
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
	if err := b.Do(t.Context(), query, variables, into); err != nil {
		t.Fatalf("%s\n%v", query, err)
	}
}

// Refused sends an operation that must fail with this code and field.
func (b Bed) Refused(t testing.TB, query string, variables object, code runtime.Code, field string) {
	t.Helper()
	var e *client.Error
	if err := b.Do(t.Context(), query, variables, nil); !errors.As(err, &e) || e.Extensions.Code != code || e.Extensions.Field != field {
		t.Errorf("%v: got the error %v, want code %s for field %q", variables, err, code, field)
	}
}

// Claim claims a runner, and releases it at the test's end.
func (b Bed) Claim(t testing.TB, environment string) string {
	t.Helper()
	id := b.ClaimUnreleased(t, environment)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		err := client.Release(ctx, b, id)
		for isLate(err) { // released, but a busy machine hasn't removed it yet
			err = client.Release(ctx, b, id)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return id
}

func isLate(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Extensions.Code == runtime.CodeClusterUnavailable
}

// typed converts an object to an input of the API.
func typed[T any](t testing.TB, written object) (input T) {
	t.Helper()
	text, err := json.Marshal(written)
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(&input)
	}
	if err != nil {
		t.Fatalf("%v: %v", written, err)
	}
	return input
}

// environments has the test that put each environment, by server and id.
var environments sync.Map

// Put puts an environment, and deletes it at the test's end. It fails if another running test has put
// that environment on the same server: whichever ended first would delete it.
func (b Bed) Put(t testing.TB, input object) {
	t.Helper()
	key := [2]any{b.Address, input["id"]}
	if by, ok := environments.LoadOrStore(key, t.Name()); ok && by != t.Name() {
		t.Fatalf("%s has put the environment %v too: give it another id, or don't run the tests in parallel", by, input["id"])
	}
	b.Change(t, input)
	t.Cleanup(func() {
		defer environments.Delete(key)
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		if err := client.Delete(ctx, b, input["id"].(string)); err != nil {
			t.Error(err)
		}
	})
}

// Change puts an environment that isn't deleted.
func (b Bed) Change(t testing.TB, input object) {
	t.Helper()
	if err := client.Put(t.Context(), b, typed[client.PutEnvironmentInput](t, input)); err != nil {
		t.Fatalf("put %v: %v", input, err)
	}
}

// forTheTest is the time limit in seconds of executions that a test starts without one. The
// environment's limit of a minute could end a program that waits for the test on a busy machine.
const forTheTest = 1200

// Start starts an execution and returns its id.
func (b Bed) Start(t testing.TB, input object) string {
	t.Helper()
	if _, limited := input["timeLimit"]; !limited {
		input = maps.Clone(input)
		input["timeLimit"] = forTheTest
	}
	execution, err := client.Start(t.Context(), b, typed[client.StartExecutionInput](t, input))
	if err != nil {
		t.Fatalf("start %v: %v", input, err)
	}
	return execution
}

// Await returns an execution's end.
func (b Bed) Await(t testing.TB, execution string) client.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	result, err := client.AwaitResult(ctx, b, execution)
	if err != nil {
		t.Fatalf("wait for the end of execution %s: %v", execution, err)
	}
	return result
}

// Run starts an execution and returns its end.
func (b Bed) Run(t testing.TB, input object) client.Result {
	t.Helper()
	return b.Await(t, b.Start(t, input))
}

// Shell runs a script in a runner and returns its end.
func (b Bed) Shell(t testing.TB, runner, script string) client.Result {
	t.Helper()
	return b.Run(t, object{"runnerId": runner, "shell": script})
}
