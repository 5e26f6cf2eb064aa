package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// runKept runs a cluster that keeps its runners at its end.
func (b *bench) runKept() {
	b.t.Helper()
	b.stop()
	b.config.Keep = true
	b.open()
	b.run()
	b.config.Keep = false // the next one removes them
	b.t.Cleanup(func() {  // whatever the test's result
		b.reopened()
		b.stop()
	})
}

// reopened starts the next server, which removes the runners at its end.
func (b *bench) reopened() {
	b.t.Helper()
	b.stop()
	b.open()
	b.run()
}

func TestRestoreKeepsLiveRunners(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKept()
	idle, claimed, dead, deadIdle := b.begin(hostEnvironment()), b.begin(hostEnvironment()), b.begin(hostEnvironment()), b.begin(hostEnvironment())
	now := time.Now()
	claim := runtime.Claim{Epoch: 1, Key: "k", ClaimedAt: now, ExpiresAt: now.Add(time.Minute), InactivityTimeout: time.Minute}
	for _, id := range []runtime.RunnerID{claimed, dead} {
		if err := b.Mark(t.Context(), id, claim); err != nil {
			t.Fatal(err)
		}
	}
	b.expect(claimed, "echo kept > file; cat file", "kept")
	// A kill that was counted before isn't the reason of a later end.
	if _, exit := b.sh(idle, "exec python3 -c 'x = bytearray(1 << 30)'"); exit.Signal != "SIGKILL" {
		t.Errorf("a program that needs 1 GiB of 128 MiB ended with %d %q, want \"SIGKILL\"", exit.Code, exit.Signal)
	}
	pid, victims := b.agentOf(claimed), []int{b.agentOf(dead), b.agentOf(deadIdle)}
	b.stop()
	for _, victim := range victims { // while no server runs
		if err := unix.Kill(victim, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	b.reopened()

	if r, _ := b.runner(idle); r.State != runtime.RunnerIdle {
		t.Errorf("the idle runner is %+v", r)
	}
	if r, _ := b.runner(claimed); r.State != runtime.RunnerClaimed || !r.Claim.Equal(claim) || b.agentOf(claimed) != pid {
		t.Errorf("the claimed runner is %+v", r)
	}
	if r, _ := b.runner(dead); r.State != runtime.RunnerGone || r.GoneReason != runtime.GoneStoppedOutside || !r.Claim.Equal(claim) {
		t.Errorf("the claimed runner that died is %+v", r)
	}
	if r, ok := b.runner(deadIdle); ok {
		t.Errorf("the idle runner that died is listed: %+v", r)
	}
	if held, err := b.host.Ranges.Held(b.host.RunnersDir()); err != nil || len(held) != 2 {
		t.Errorf("user ids are held: %v, %v", held, err)
	}
	lost := 0
	allocations, _ := b.scheduler.Allocations(runtime.AllocationFilter{})
	for _, a := range allocations {
		if a.Status == runtime.AllocationLost {
			lost++
		}
	}
	if lost != 2 {
		t.Errorf("%d allocations are lost, want 2", lost)
	}
	b.expect(claimed, "cat file", "kept")
	b.expect(b.begin(hostEnvironment()), "echo hi", "hi")

	// They are watched, removed and counted like any other runner.
	if err := unix.Kill(b.agentOf(idle), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := b.await(idle, runtime.RunnerGone); r.GoneReason != runtime.GoneAgentDied {
		t.Errorf("it ended, and is %+v", r)
	}
	if _, err := b.Evidence(t.Context(), claimed); err != nil {
		t.Error(err)
	}
	for _, id := range []runtime.RunnerID{idle, claimed, dead} {
		if err := b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// A runner whose agent doesn't answer is useless, and must not delay the others.
func TestRestoreOfASilentAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKept()
	silent, good, dead := b.begin(hostEnvironment()), b.begin(hostEnvironment()), b.begin(hostEnvironment())
	if err := b.Mark(t.Context(), silent, runtime.Claim{Epoch: 1, ClaimedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	pid, victim := b.agentOf(silent), b.agentOf(dead)
	b.stop()
	freeze(t, pid)
	if err := unix.Kill(victim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.reopened()
	if r, _ := b.runner(silent); r.State != runtime.RunnerGone || !strings.Contains(r.Message, "didn't answer") {
		t.Errorf("the silent one is %+v, want GONE because it didn't answer", r)
	}
	if r, _ := b.runner(good); r.State != runtime.RunnerIdle {
		t.Errorf("the other one is %+v", r)
	}
	if r, ok := b.runner(dead); ok {
		t.Errorf("the dead one is %+v", r)
	}
	if pids := b.processes(); len(pids) != 1 {
		t.Errorf("processes %v are there", pids)
	}
	if err := b.Remove(t.Context(), silent); err != nil {
		t.Error(err)
	}
	b.expect(b.begin(hostEnvironment()), "echo hi", "hi")
}

// A runner of a server with another protocol is unusable, and its claimant reads why.
func TestRestoreOfAnIncompatibleAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKept()
	id := b.begin(hostEnvironment())
	if err := b.Mark(t.Context(), id, claimOf(1)); err != nil {
		t.Fatal(err)
	}
	b.stop()
	dir, err := os.Open(filepath.Join(b.config.Dir, "runners", string(id)))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	socket := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), spec.SocketName) // a short path
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	newer, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		conn, err := newer.Accept()
		if err == nil {
			_, _, _ = agent.NewFrameReader(conn, agent.AgentSide).Next()
			frame, _ := agent.AppendJSON(nil, agent.KindResponse, agent.Response{
				Protocol: agent.Protocol + 1, Error: &agent.Error{Code: agent.ErrIncompatible, Message: "the agent has another version of the protocol"},
			})
			_, err = conn.Write(frame)
			_ = conn.Close()
		}
		answered <- err
	}()
	b.reopened()
	_ = newer.Close()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if r, _ := b.runner(id); r.State != runtime.RunnerGone || !strings.Contains(r.Message, "protocol") {
		t.Errorf("the runner is %+v, want GONE because of the protocol", r)
	}
	if err := b.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// A server that must end while it restores ends no runner.
func TestInterruptedRestoreEndsNoRunner(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKept()
	idle, dead := b.begin(hostEnvironment()), b.begin(hostEnvironment())
	pid, victim := b.agentOf(idle), b.agentOf(dead)
	b.stop()
	if err := unix.Kill(victim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := errors.New("asked to end")
	cancel(asked)
	config := b.config
	core, logs := observer.New(zap.InfoLevel)
	config.Logger = zap.New(core)
	if c, err := New(ctx, config); !errors.Is(err, asked) {
		t.Errorf("New returned %v, %v, want %v", c, err, asked)
	}
	if said := logs.FilterMessageSnippet("a runner of the last server").All(); len(said) > 0 {
		t.Errorf("it was logged, although that is unknown: %+v", said)
	}
	b.reopened()
	if r, _ := b.runner(idle); r.State != runtime.RunnerIdle || b.agentOf(idle) != pid {
		t.Errorf("the runner that lives is %+v", r)
	}
	if r, ok := b.runner(dead); ok {
		t.Errorf("the dead one is %+v", r)
	}
	if err := b.Remove(t.Context(), idle); err != nil {
		t.Error(err)
	}
}

// Runners that a server removed at its end don't appear at the next one.
func TestRestoreIgnoresRemovedRunners(t *testing.T) {
	t.Parallel()
	b := running(t)
	held := b.begin(hostEnvironment())
	if err := b.Mark(t.Context(), held, claimOf(1)); err != nil {
		t.Fatal(err)
	}
	b.stop()
	core, logs := observer.New(zap.InfoLevel)
	b.config.Logger = zap.New(core)
	b.reopened()
	if r, ok := b.runner(held); !ok || r.State != runtime.RunnerGone {
		t.Errorf("the runner that was held is %+v", r)
	}
	if said := logs.FilterMessageSnippet("a runner of the last server").All(); len(said) > 0 {
		t.Errorf("it is said to be lost: %+v", said)
	}
}

// A runner that was taken over once is taken over again, and keeps its root directory, while unused
// root directories are deleted.
func TestRestoreTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKept()
	id := b.begin(hostEnvironment())
	b.runKept()
	b.expect(id, "test -e /etc/passwd && echo there", "there")
	b.runKept()
	b.expect(id, "test -e /etc/passwd && echo there", "there")
	roots, err := os.ReadDir(filepath.Join(b.config.Dir, "roots"))
	if err != nil || len(roots) != 2 {
		t.Errorf("roots: %v, %v; want that of the runner and this server's", roots, err)
	}
	b.reopened()
}

// A process that only resembles the started one is refused.
func TestReattachRefusesOtherProcesses(t *testing.T) {
	b := running(t)
	id, other := b.begin(hostEnvironment()), b.begin(hostEnvironment())
	stranger := os.Getpid()
	strangerStart, err := helper.StartTime(stranger)
	if err != nil {
		t.Fatal(err)
	}
	otherStart, err := helper.StartTime(b.agentOf(other))
	if err != nil {
		t.Fatal(err)
	}
	d := b.newEntry(runtime.Runner{ID: id}, 0, runner.Record{}).runner.Sandbox
	record := b.privateOf(id)
	h, err := d.Reattach(t.Context(), *record.Process, *record.Slot)
	if err != nil {
		t.Fatalf("%+v: %v", record.Process, err)
	}
	h.Close()
	for name, process := range map[string]runner.Process{
		"another start time":          handleOf(b.agentOf(id), strangerStart),
		"a process outside":           handleOf(stranger, strangerStart),
		"a process of another runner": handleOf(b.agentOf(other), otherStart),
		"no process":                  handleOf(1<<30, 0),
	} {
		if h, err := d.Reattach(t.Context(), process, *record.Slot); err == nil {
			h.Close()
			t.Errorf("%s is taken for the runner", name)
		}
	}
}

// An unreadable record doesn't affect other runners, and is reported.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKept()
	good, bad := b.begin(hostEnvironment()), b.begin(hostEnvironment())
	b.stop()
	b.store.mu.Lock()
	r := b.store.runners[bad]
	r.private = []byte("{")
	b.store.runners[bad] = r
	b.store.mu.Unlock()
	b.reopened()
	if r, _ := b.runner(good); r.State != runtime.RunnerIdle {
		t.Errorf("the other runner is %+v", r)
	}
	if r, ok := b.runner(bad); ok {
		t.Errorf("it is listed: %+v", r)
	}
	status, err := b.Status(t.Context())
	if err != nil || len(status.Problems) != 1 || status.Problems[0].Subject != "runner "+string(bad) || status.Problems[0].Since.IsZero() {
		t.Errorf("problems: %+v, %v", status.Problems, err)
	}
}

// A failing removal is retried and reported, and doesn't delay the server's start.
func TestRemovalThatFails(t *testing.T) {
	b := newBench(t)
	b.runKept()
	id := b.begin(hostEnvironment())
	hidden := b.host.Direct.Path + ".hidden"
	if err := os.Rename(b.host.Direct.Path, hidden); err != nil {
		t.Fatal(err)
	}
	b.host.Direct.Maker.Close()
	if err := b.Remove(t.Context(), id); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("Remove without the helper: got %v, want CLUSTER_UNAVAILABLE", err)
	}
	if r, _ := b.runner(id); r.State != runtime.RunnerStopping {
		t.Errorf("the runner is %+v", r)
	}
	b.stop() // during the pause before the next try
	b.reopened()
	if r, ok := b.runner(id); ok {
		t.Errorf("it is listed after the next start: %+v", r)
	}
}

// create makes an environment's sandbox like a start, without a record. When ctx ends, the helper
// gets SIGKILL.
func (b *bench) create(ctx context.Context, env runtime.Environment) error {
	b.t.Helper()
	e := b.newEntry(runtime.Runner{ID: runtime.NewRunnerID(), Environment: env, State: runtime.RunnerStarting}, runtime.PriorityRefill, runner.Record{})
	made := e.runner.Sandbox
	if err := b.put(b.t.Context(), e.info, runner.Record{Group: made.Group}); err != nil {
		b.t.Fatal(err)
	}
	h, _, err := made.Create(ctx, *placed(b.t, made))
	if err == nil {
		h.Close()
	}
	return err
}

// atSomeMoment returns a context that ends at a random moment of an action that takes about so
// long. So creates are also killed at moments that nobody thought of; what they left must be
// removed.
func atSomeMoment(t testing.TB, about time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), rand.N(about))
	t.Cleanup(cancel)
	return ctx
}

// killCreates kills helpers during creates: at each stage where something is left, and at random
// moments.
func (b *bench) killCreates(env runtime.Environment, left func(stage string)) {
	b.t.Helper()
	for _, stage := range sandboxtest.Deaths {
		if err := launch.WriteProgram(b.host.Direct.Path, sandboxtest.Dying(b.t, stage)); err != nil {
			b.t.Fatal(err)
		}
		if err := b.create(b.t.Context(), env); err == nil {
			b.t.Errorf("a helper outlived %q", stage)
		}
		left(stage)
	}
	if err := launch.WriteProgram(b.host.Direct.Path, b.config.Helper); err != nil {
		b.t.Fatal(err)
	}
	began := time.Now()
	if err := b.create(b.t.Context(), env); err != nil {
		b.t.Error(err)
	}
	whole := time.Since(began)
	for range 10 {
		_ = b.create(atSomeMoment(b.t, whole), env) // the error is due to the kill
	}
}

// The helper and the server die during a create.
func TestKilledCreates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	groups := 0
	pids, _ := b.host.Trees.Controller("pids")
	b.killCreates(hostEnvironment(), func(stage string) {
		all, err := filepath.Glob(filepath.Join(pids.Mount, b.config.CgroupParent, "*", cgroup.Commands))
		if err != nil || len(all) != groups+1 {
			t.Errorf("killed at %q it left %d groups after %d (%v)", stage, len(all), groups, err)
		}
		groups = len(all)
		// A first process that isn't the agent yet ends with the maker.
		wait.For(t, "first processes end", func() bool { return len(b.processes()) == 0 || stage == "running" })
		if stage == "running" && len(b.processes()) == 0 {
			t.Error("the agent didn't outlive its maker")
		}
	})
	b.stop()
	b.open()
	b.noRunnerLeft()
	b.run()
	b.expect(b.begin(hostEnvironment()), "echo hi", "hi")
}

// A readable but invalid record, for example of an older server, doesn't affect other runners
// either.
func TestRecordWithoutLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.runKept()
	good, bad := b.begin(hostEnvironment()), b.begin(hostEnvironment())
	b.stop()
	b.store.mu.Lock()
	r := b.store.runners[bad]
	r.runner.Environment.Resources.Processes = 0
	b.store.runners[bad] = r
	b.store.mu.Unlock()
	b.reopened()
	if r, _ := b.runner(good); r.State != runtime.RunnerIdle {
		t.Errorf("the other runner is %+v", r)
	}
	if r, ok := b.runner(bad); ok {
		t.Errorf("it is listed: %+v", r)
	}
	status, err := b.Status(t.Context())
	if err != nil || len(status.Problems) != 1 || status.Problems[0].Subject != "runner "+string(bad) {
		t.Errorf("problems: %+v, %v", status.Problems, err)
	}
}

// A root directory that can't be removed is reported, and stops nothing.
func TestUnremovableRootIsReported(t *testing.T) {
	b := newBench(t)
	b.stop()
	at := filepath.Join(filepath.Join(b.config.Dir, "roots"), "old", "usr")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	unmount := sync.OnceFunc(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	defer unmount()
	b.open()
	defer b.Cluster.Close()
	status, err := b.Status(t.Context())
	if err != nil || len(status.Problems) != 1 || status.Problems[0].Subject != "root directories" {
		t.Errorf("problems: %+v, %v", status.Problems, err)
	}
}

// A live runner is taken over however long the others took.
func TestLiveRunnersAreRestoredAfterTheTimeLimit(t *testing.T) {
	b := newBench(t)
	b.runKept()
	id := b.begin(hostEnvironment())
	b.stop()
	b.open()
	b.leave(errors.New("for the test")) // this one is checked again, after the time limit
	b.leading.Wait()
	life, leave := context.WithCancelCause(context.WithoutCancel(t.Context()))
	b.Cluster.run, b.leave = func(r *runner.Runner) { b.leading.Go(func() { r.Run(life) }) }, leave
	left, err := b.recorded(t.Context())
	if err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	close(left[0].recorded)
	if err := b.restoreRunner(t.Context(), left[0], time.Now()); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.expect(id, "echo hi", "hi")
}

// Check's sandbox survives a failing removal: a Ctrl-C can reach a helper that was just forked and
// isn't in its own session yet. The next server removes the sandbox.
func TestNextServerRemovesTheSandboxOfCheck(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	once := &failsOnce{Launcher: b.host.Launcher, err: errors.New("signal: interrupt")}
	b.host.Launcher = once
	if err := b.Check(t.Context()); !errors.Is(err, once.err) {
		t.Errorf("Check: %v, want %v", err, once.err)
	}
	if left := b.processes(); len(left) == 0 {
		t.Error("the removal that failed left no process")
	}
	if held, err := b.host.Ranges.Held(b.host.RunnersDir()); err != nil || len(held) != 1 {
		t.Errorf("user ids of the remaining runner: %v (%v), want its own", held, err)
	}
	b.run().reopened()
	b.noRunnerLeft()
}

// The first Remove of a failsOnce launcher fails and does nothing.
type failsOnce struct {
	host.Launcher
	err   error
	tried bool
}

func (f *failsOnce) Remove(ctx context.Context, id, group string) error {
	if !f.tried {
		f.tried = true
		return f.err
	}
	return f.Launcher.Remove(ctx, id, group)
}
