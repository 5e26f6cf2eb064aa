package local

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/disk"
	"github.com/rockpool/rockpool/test/refusal"
)

func TestAgentDies(t *testing.T) {
	b := running(t)
	id := b.begin(hostEnvironment())
	claim := runtime.Claim{Epoch: 1, Key: "k", ClaimedAt: time.Now()}
	if err := b.Mark(t.Context(), id, claim); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(b.agentOf(id), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := b.await(id, runtime.RunnerGone)
	if r.GoneReason != runtime.GoneAgentDied || !r.Claim.Equal(claim) || r.Message == "" {
		t.Errorf("the runner is %+v", r)
	}
	if _, err := b.Dial(t.Context(), id); runtime.CodeOf(err) != runtime.CodeRunnerGone {
		t.Errorf("Dial: got %v, want RUNNER_GONE", err)
	}
	claim.Epoch = 2
	if err := b.Mark(t.Context(), id, claim); runtime.CodeOf(err) != runtime.CodeRunnerGone {
		t.Errorf("Mark: got %v, want RUNNER_GONE", err)
	}
	if counted, err := b.Evidence(t.Context(), id); err != nil || counted.CPU == 0 {
		t.Errorf("Evidence: %v", err)
	}
	for range 2 {
		if err := b.Remove(t.Context(), id); err != nil {
			t.Errorf("Remove: %v", err)
		}
	}
	if _, ok := b.runner(id); ok {
		t.Error("a removed runner is listed")
	}
	if _, err := b.Evidence(t.Context(), id); runtime.CodeOf(err) != runtime.CodeRunnerGone {
		t.Errorf("Evidence of a removed runner: got %v, want RUNNER_GONE", err)
	}
}

func TestMark(t *testing.T) {
	b := running(t)
	id := b.begin(hostEnvironment())
	now := time.Now()
	claims := []runtime.Claim{{Epoch: 1, Key: "a", ClaimedAt: now}, {Epoch: 1, Key: "b", ClaimedAt: now}, {Epoch: 2, Key: "a", ClaimedAt: now}, {Epoch: 4, ClaimedAt: now}}
	for i, want := range []runtime.Code{"", runtime.CodeConflict, "", runtime.CodeConflict} {
		err := b.Mark(t.Context(), id, claims[i])
		if want == "" && err != nil || want != "" && runtime.CodeOf(err) != want {
			t.Errorf("claim %d: %v", i, err)
		}
	}
	if err := b.Mark(t.Context(), id, claims[2]); err != nil {
		t.Errorf("the same claim again: %v", err)
	}
	if r, _ := b.runner(id); r.State != runtime.RunnerClaimed || !r.Claim.Equal(claims[2]) {
		t.Errorf("the runner is %+v", r)
	}
	if err := b.Mark(t.Context(), runtime.NewRunnerID(), claims[0]); runtime.CodeOf(err) != runtime.CodeRunnerGone {
		t.Errorf("a missing runner: got %v, want RUNNER_GONE", err)
	}
}

func TestRemoveAtAnyTime(t *testing.T) {
	b := running(t)
	var removing sync.WaitGroup
	for i := range 12 { // later runners are still queued or being made
		id := runtime.NewRunnerID()
		if err := b.Start(t.Context(), id, hostEnvironment(), runtime.PriorityRefill); err != nil {
			t.Fatal(err)
		}
		if i%4 == 3 {
			b.await(id, runtime.RunnerIdle)
		}
		for range 2 {
			removing.Go(func() {
				if err := b.Remove(t.Context(), id); err != nil {
					t.Error(err)
				}
				if _, ok := b.runner(id); ok {
					t.Errorf("runner %s is listed after Remove", id)
				}
			})
		}
	}
	removing.Wait()
	if err := b.Remove(t.Context(), "never-there"); err != nil {
		t.Error(err)
	}
	if pids := b.processes(); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
}

// A gatheringLauncher launcher blocks removals until several run concurrently.
type gatheringLauncher struct {
	host.Launcher
	missing atomic.Int64
	all     chan struct{} // closed when all have arrived
}

func (g *gatheringLauncher) Remove(ctx context.Context, id, group string) error {
	if g.missing.Add(-1) == 0 {
		close(g.all)
	}
	select {
	case <-g.all:
		return g.Launcher.Remove(ctx, id, group)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestManyConcurrentRunners also shows that removals run concurrently.
func TestManyConcurrentRunners(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.config.Parallel = 2
	b.open()
	ids := make([]runtime.RunnerID, 20)
	together := &gatheringLauncher{Launcher: b.host.Launcher, all: make(chan struct{})}
	together.missing.Store(int64(2 * b.config.Parallel))
	b.host.Launcher = together
	b.run()
	var starting sync.WaitGroup
	for i := range ids {
		ids[i] = runtime.NewRunnerID()
		for range 2 { // the second call finds a known runner
			starting.Go(func() {
				if err := b.Start(t.Context(), ids[i], hostEnvironment(), runtime.PriorityRefill); err != nil {
					t.Error(err)
				}
			})
		}
	}
	starting.Wait()
	slots := map[int]bool{}
	for _, id := range ids {
		if r := b.await(id, runtime.RunnerIdle); r.State != runtime.RunnerIdle {
			t.Errorf("the runner is %s: %s", r.State, r.Message)
		}
		slots[b.slotOf(id)] = true
	}
	if len(slots) != len(ids) {
		t.Errorf("%d runners share %d ranges of user ids", len(ids), len(slots))
	}
	b.stop() // stop fails if a removal failed
}

func TestLongDirectory(t *testing.T) {
	b := newBench(t)
	b.stop()
	b.config.Dir = filepath.Join(b.config.Dir, strings.Repeat("long/", 40))
	b.open()
	b.run()
	b.expect(b.begin(hostEnvironment()), "echo hi", "hi")
}

func TestOneServerPerDirectory(t *testing.T) {
	t.Parallel()
	b := running(t)
	if _, err := New(t.Context(), b.config); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("a second server: got %v, want %v", err, disk.ErrLocked)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.stop()
	b.config.Agent = []byte("#!/bin/true\n")
	b.open()
	b.run()
	id := runtime.NewRunnerID()
	if err := b.Start(t.Context(), id, hostEnvironment(), runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	r := b.await(id, runtime.RunnerIdle)
	if r.State != runtime.RunnerGone || r.GoneReason != runtime.GoneStartFailed || r.Message == "" {
		t.Errorf("the runner is %+v", r)
	}
	if pids := b.processes(); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
}

// An error in the server's own files is retried, then reported with what to do.
func TestMissingHelperIsReported(t *testing.T) {
	t.Parallel()
	b := running(t)
	if err := os.Rename(b.host.Direct.Path, b.host.Direct.Path+".hidden"); err != nil {
		t.Fatal(err)
	}
	id := runtime.NewRunnerID()
	if err := b.Start(t.Context(), id, hostEnvironment(), runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	r := b.await(id, runtime.RunnerGone)
	if r.GoneReason != runtime.GoneStartFailed || !strings.Contains(r.Message, "restart the server") || strings.Contains(r.Message, b.config.Dir) {
		t.Errorf("the runner is %+v, want START_FAILED with the next step, without a path", r)
	}
	if err := os.Rename(b.host.Direct.Path+".hidden", b.host.Direct.Path); err != nil {
		t.Fatal(err)
	}
	err := b.Remove(t.Context(), id)
	if err != nil { // an attempt that started without the helper may have failed meanwhile
		err = b.Remove(t.Context(), id)
	}
	if err != nil {
		t.Error(err)
	}
}

// A repairingLauncher launcher repairs something after a failed create, before the server sees the error.
type repairingLauncher struct {
	host.Launcher
	repair func()
}

func (r *repairingLauncher) Create(ctx context.Context, group string, q helper.Request, listener *os.File) (helper.Answer, error) {
	answer, err := r.Launcher.Create(ctx, group, q, listener)
	if err != nil {
		r.repair()
	}
	return answer, err
}

// The start succeeds if the helper is restored between two attempts.
func TestRestoredHelperEndsTheRetries(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	move := func(from, to string) {
		if err := os.Rename(b.host.Direct.Path+from, b.host.Direct.Path+to); err != nil {
			t.Error(err)
		}
	}
	b.host.Launcher = &repairingLauncher{b.host.Launcher, func() { move(".hidden", "") }}
	b.run()
	move("", ".hidden")
	id := b.begin(hostEnvironment())
	b.store.mu.Lock()
	said := b.store.said[id]
	b.store.mu.Unlock()
	if r, _ := b.runner(id); r.Message != "" || b.Stats().Tasks.Restarts != 1 || !strings.Contains(said, "rockpool-sandbox") {
		t.Errorf("its message was %q while it waited, and now it is %+v", said, r)
	}
}

// A leak is reported while it exists.
func TestLeakIsReported(t *testing.T) {
	b := newBench(t)
	defer b.stop()
	e := b.newEntry(runtime.Runner{ID: "a"}, 0, runner.Record{})
	b.entries["a"] = e
	for leak, problems := range map[string]int{"busy": 1, "": 0} {
		if leak == "" {
			b.reportLeak(e, "busy")
		}
		if err := b.save(t.Context(), e, runner.Status{State: runtime.RunnerStopping, Record: runner.Record{Leak: leak}}); err != nil {
			t.Fatal(err)
		}
		status, err := b.Status(t.Context())
		if err != nil || len(status.Problems) != problems || problems > 0 && status.Problems[0].Message != leak {
			t.Errorf("leak %q: %+v, %v", leak, status.Problems, err)
		}
		if s := b.Stats(); s.Leaked != problems || s.Problems != problems {
			t.Errorf("leak %q: %d leaked, %d problems", leak, s.Leaked, s.Problems)
		}
	}
}

// The status reports the largest runner that can ever be placed.
func TestStatusReportsTheLargestRunner(t *testing.T) {
	b := newBench(t)
	defer b.stop()
	status, err := b.Status(t.Context())
	if err != nil || status.CoreMHz < 1 || !slices.Contains(status.HostInterpreters, "sh") {
		t.Errorf("status: %+v, %v", status, err)
	}
	if most := status.LargestRunner; most == nil || most.CPUMHz != status.Capacity.CPUMHzPromisable || int64(most.MemoryMiB) != status.Capacity.MemoryMiBPromisable || most.Processes < 1 || most.WorkspaceMiB < 1 {
		t.Errorf("the largest runner: %+v, of %+v", most, status.Capacity)
	}
}

func TestEnvironments(t *testing.T) {
	b := running(t)
	env := hostEnvironment()
	if err := b.PutEnvironment(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*runtime.Environment){
		"image":                func(e *runtime.Environment) { e.Image = "python:3" },
		"isolation":            func(e *runtime.Environment) { e.Isolation = runtime.IsolationNone },
		"network.access":       func(e *runtime.Environment) { e.Network.Access = true },
		"network.exposedPorts": func(e *runtime.Environment) { e.Network.ExposedPorts = []int{80} },
	} {
		wrong := env
		wrong.Revision = 2
		change(&wrong)
		for _, err := range []error{b.PutEnvironment(t.Context(), wrong), b.Start(t.Context(), runtime.NewRunnerID(), wrong, 0)} {
			refusal.Want(t, err, runtime.CodeInvalidInput, field)
		}
	}
	all, err := b.Environments(t.Context())
	if err != nil || len(all) != 1 || all[0].Revision != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := b.DeleteEnvironment(t.Context(), env.ID); err != nil {
		t.Error(err)
	}
	if all, _ := b.Environments(t.Context()); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestCheck(t *testing.T) {
	b := running(t)
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
	b.stop()
	b.config.Agent, b.config.Helper = nil, nil
	b.open()
	defer b.Cluster.Close()
	err := b.Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("nothing built in: got %v, want `make build` in it", err)
	}
	if err := b.Start(t.Context(), runtime.NewRunnerID(), hostEnvironment(), 0); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("Start: got %v, want CLUSTER_UNAVAILABLE", err)
	}
}

// Only the agent holds the socket: nobody else accepts connections when it is dead, and only the
// server's user can connect.
func TestSocket(t *testing.T) {
	b := running(t)
	id := b.begin(hostEnvironment())
	if err := unix.Kill(b.agentOf(id), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.await(id, runtime.RunnerGone)
	// The runner's directory may be deleted at any moment from now on.
	if conn, err := net.Dial("unix", b.host.SocketPath(id, spec.SocketName)); !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("connected to a dead agent: %v, %v", conn, err)
	}
	info, err := os.Stat(b.host.RunnersDir())
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the runners' directory is %v, %v", info.Mode(), err)
	}
}
