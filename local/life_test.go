package local

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/serve"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// A fakeLauncher makes no sandboxes: a runner's first process is a sleep, and this process answers
// for its agent.
type fakeLauncher struct {
	host.Launcher

	mu   sync.Mutex // guards all below
	made map[string]*exec.Cmd
	hold chan struct{} // Create waits until it is closed
}

func (l *fakeLauncher) Create(_ context.Context, _ string, q helper.Request, listener *os.File) (helper.Answer, error) {
	l.mu.Lock()
	hold := l.hold
	l.mu.Unlock()
	if hold != nil {
		<-hold
	}
	at, err := net.FileListener(listener)
	if err != nil {
		return helper.Answer{}, err
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		return helper.Answer{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _ = serve.New(nil, serve.Config{}).Serve(ctx, at) }()
	go func() {
		_ = cmd.Wait()
		cancel()
		_ = at.Close()
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made[q.ID] = cmd
	started, err := helper.StartTime(cmd.Process.Pid)
	return helper.Answer{PID: cmd.Process.Pid, Start: started}, err
}

func (l *fakeLauncher) Remove(_ context.Context, id, _ string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cmd := l.made[id]; cmd != nil {
		_ = cmd.Process.Kill()
		delete(l.made, id)
	}
	return nil
}

func (l *fakeLauncher) pid(id runtime.RunnerID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made[string(id)].Process.Pid
}

// A fakeBench is a cluster without sandboxes, for tests that need no root.
type fakeBench struct {
	*Cluster
	t        *testing.T
	store    *memoryStore
	launcher *fakeLauncher
	config   Config
	stop     func()
}

func newFake(t *testing.T, change func(*Config)) *fakeBench {
	t.Parallel()
	if !uids.Root() {
		need.Lacks(t, "this test opens a cluster as root")
	}
	store := newStore()
	b := &fakeBench{t: t, store: store, launcher: &fakeLauncher{made: map[string]*exec.Cmd{}}}
	b.config = Config{Store: store, Config: host.Config{
		Dir: t.TempDir(), Logger: zaptest.NewLogger(t), Agent: []byte("agent"), Helper: []byte("helper"), CgroupParent: "rockpool/test-fake",
	}, Images: image.Config{Image: tree.Limits{Bytes: 1 << 20}, Bytes: 1 << 20, Within: time.Minute}}
	change(&b.config)
	b.open()
	return b
}

func (b *fakeBench) open() {
	c, err := New(context.Background(), b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := c.host.Ready(); err != nil {
		need.Lacks(b.t, "%v", err)
	}
	c.host.Launcher = b.launcher
	c.host.Ranges = &uids.Ranges{Dir: filepath.Join(b.config.Dir, "uids"), Count: 1000, First: 100000, Size: 0}
	b.Cluster = c
	b.stop = c.Close
}

func (b *fakeBench) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	})
	b.t.Cleanup(func() { b.stop() })
}

func (b *fakeBench) await(id runtime.RunnerID, state runtime.RunnerState) (r runtime.Runner) {
	b.t.Helper()
	wait.For(b.t, "it is "+string(state), func() bool {
		all, _ := b.Runners(b.t.Context(), "")
		for _, r = range all {
			if r.ID == id {
				return r.State == state || r.State == runtime.RunnerGone
			}
		}
		r = runtime.Runner{}
		return state == ""
	})
	return r
}

func (b *fakeBench) begin() runtime.RunnerID {
	id := runtime.NewRunnerID()
	if err := b.Start(b.t.Context(), id, hostEnvironment(), runtime.PriorityRefill); err != nil {
		b.t.Fatal(err)
	}
	return id
}

// A runner is made, claimed and removed; another one ends by its agent's death. Nothing of them is
// left.
func TestLifeOfARunner(t *testing.T) {
	b := newFake(t, func(*Config) {})
	early := b.begin()
	b.run()
	id := b.begin()
	for _, id := range []runtime.RunnerID{early, id} {
		if r := b.await(id, runtime.RunnerIdle); r.State != runtime.RunnerIdle {
			t.Fatalf("it is %+v", r)
		}
	}
	if err := b.Mark(t.Context(), id, claimOf(1)); err != nil {
		t.Fatal(err)
	}
	if r := b.await(id, runtime.RunnerClaimed); r.State != runtime.RunnerClaimed {
		t.Fatalf("it is %+v", r)
	}
	conn, err := b.Dial(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if err := b.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.await(id, "")
	events, _ := b.TaskEvents(t.Context(), id)
	var kinds []runtime.TaskEventKind
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	if want := []runtime.TaskEventKind{runtime.TaskPlaced, runtime.TaskPreparing, runtime.TaskStarted, runtime.TaskReady, runtime.TaskStopping, runtime.TaskEnded}; !slices.Equal(kinds, want) {
		t.Errorf("events: %q, want %q", kinds, want)
	}
	all, total := b.scheduler.Allocations(runtime.AllocationFilter{RunnerID: id})
	if total != 1 || all[0].Status != runtime.AllocationComplete || all[0].Desired != runtime.DesiredStop {
		t.Errorf("allocations: %+v", all)
	}
	if err := unix.Kill(b.launcher.pid(early), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := b.await(early, runtime.RunnerGone); r.GoneReason != runtime.GoneAgentDied {
		t.Errorf("it is %+v", r)
	}
	all, _ = b.scheduler.Allocations(runtime.AllocationFilter{RunnerID: early})
	if all[0].Status != runtime.AllocationFailed || !strings.Contains(all[0].Message, "agent") {
		t.Errorf("got allocations %+v, want one that FAILED because of the agent", all)
	}
	if err := b.Remove(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Evidence(t.Context(), early); runtime.CodeOf(err) != runtime.CodeRunnerGone {
		t.Errorf("evidence of a removed runner: got %v, want RUNNER_GONE", err)
	}
	if used := b.scheduler.Node().Used; used != (runtime.Resources{}) {
		t.Errorf("used %+v", used)
	}
	if left, _ := os.ReadDir(b.host.RunnersDir()); len(left) > 0 || len(b.store.runners) > 0 {
		t.Errorf("%v, %v", left, b.store.runners)
	}
}

// Runners are removed before they have an allocation, while they wait for their turn, while they are
// made, and at other moments. All room is free afterwards.
func TestRemovalsAtAnyTime(t *testing.T) {
	b := newFake(t, func(c *Config) { c.Parallel = 1 })
	b.run()
	b.launcher.hold = make(chan struct{})
	first := b.begin()
	wait.For(t, "it is being made", func() bool { return b.counts.Read().Phases[health.PhasePrestart].Count() == 1 })
	second := b.begin()
	wait.For(t, "both are placed", func() bool { return b.scheduler.Stats().Placed == 2 })
	if err := b.Remove(t.Context(), second); err != nil { // it waits for its turn
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.Remove(ctx, first); !errors.Is(err, context.DeadlineExceeded) { // it is being made
		t.Fatalf("got %v, want %v", err, context.DeadlineExceeded)
	}
	close(b.launcher.hold)
	if err := b.Remove(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	b.launcher.mu.Lock()
	b.launcher.hold = nil
	b.launcher.mu.Unlock()
	if err := b.SetDraining(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	waits := b.begin()
	if r, _ := b.Runners(t.Context(), ""); len(r) != 1 || !strings.Contains(r[0].Message, "drained") {
		t.Errorf("got %+v, want one that waits for the drain", r)
	}
	if err := b.Remove(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	if err := b.SetDraining(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			id := b.begin()
			<-time.After(time.Duration(i%25) * time.Millisecond)
			if err := b.Remove(context.Background(), id); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if used := b.scheduler.Node().Used; used != (runtime.Resources{}) || len(b.store.runners) > 0 || len(b.launcher.made) > 0 {
		t.Errorf("used %+v, %v", used, b.store.runners)
	}
	if s := b.scheduler.Stats(); s.Depths.Outstanding+s.Depths.Ready+s.Depths.Blocked != 0 {
		t.Errorf("%+v", s)
	}
}

// A drained machine keeps its claimed runners, and continues to drain after a restart. A queued runner
// is made after that. A claimed runner that ended while no server ran is listed as GONE; its
// allocation is LOST.
func TestDrainAcrossARestart(t *testing.T) {
	b := newFake(t, func(c *Config) { c.Keep = true })
	b.run()
	id, dies, claimed := b.begin(), b.begin(), b.begin()
	b.await(id, runtime.RunnerIdle)
	b.await(dies, runtime.RunnerIdle)
	b.await(claimed, runtime.RunnerIdle)
	if err := b.Mark(t.Context(), claimed, claimOf(1)); err != nil {
		t.Fatal(err)
	}
	if err := b.SetDraining(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if r := b.await(id, runtime.RunnerGone); r.GoneReason != runtime.GoneDrained {
		t.Errorf("it is %+v", r)
	}
	queued := b.begin()
	if err := b.Remove(t.Context(), dies); err != nil {
		t.Fatal(err)
	}
	b.stop()
	// They have no cgroups, so they count as dead.
	b.open()
	b.run()
	if r := b.await(claimed, runtime.RunnerGone); r.GoneReason != runtime.GoneStoppedOutside {
		t.Errorf("it is %+v", r)
	}
	if s, _ := b.Status(t.Context()); s.Draining == nil || s.Draining.Leaving != 0 {
		t.Errorf("%+v", s.Draining)
	}
	all, _ := b.scheduler.Allocations(runtime.AllocationFilter{RunnerID: claimed})
	if len(all) != 1 || all[0].Status != runtime.AllocationLost || all[0].Desired != runtime.DesiredStop {
		t.Errorf("allocations: %+v", all)
	}
	if err := b.SetDraining(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if r := b.await(queued, runtime.RunnerIdle); r.State != runtime.RunnerIdle {
		t.Errorf("it is %+v", r)
	}
	for _, id := range []runtime.RunnerID{id, claimed, queued} {
		if err := b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if used := b.scheduler.Node().Used; used != (runtime.Resources{}) || len(b.store.runners) > 0 || len(b.launcher.made) > 0 {
		t.Errorf("used %+v, %v", used, b.store.runners)
	}
}

// The end of a server that doesn't keep its runners removes them, whatever they wait for. Only the
// record of a claimed one stays.
func TestEndOfAServerRemovesRunners(t *testing.T) {
	b := newFake(t, func(c *Config) { c.Parallel = 1 })
	b.run()
	claimed := b.begin()
	b.await(claimed, runtime.RunnerIdle)
	if err := b.Mark(t.Context(), claimed, claimOf(1)); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		b.begin()
	}
	b.stop()
	if len(b.store.runners) != 1 || b.store.runners[claimed].runner.State != runtime.RunnerGone || b.store.runners[claimed].runner.GoneReason != runtime.GoneStoppedOutside {
		t.Errorf("%+v", b.store.runners)
	}
	if len(b.launcher.made) > 0 {
		t.Errorf("%v", b.launcher.made)
	}
}
