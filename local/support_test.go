package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// Slow: it makes many real sandboxes, some in their own networks, and waits 5 s for silent agents.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryStore is a Store that outlives clusters, but not processes.
type memoryStore struct {
	mu           sync.Mutex // guards all below
	environments map[runtime.EnvironmentID]runtime.Environment
	runners      map[runtime.RunnerID]storedRunner
	draining     time.Time
	said         map[runtime.RunnerID]string // all messages of runners
}

type storedRunner struct {
	runner  runtime.Runner
	private []byte
}

func newStore() *memoryStore {
	return &memoryStore{environments: map[runtime.EnvironmentID]runtime.Environment{}, runners: map[runtime.RunnerID]storedRunner{}, said: map[runtime.RunnerID]string{}}
}

func (s *memoryStore) Environments(_ context.Context, each func(runtime.Environment, error) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, env := range s.environments {
		if err := each(env, nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *memoryStore) PutEnvironment(_ context.Context, env runtime.Environment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.environments[env.ID].Revision != env.Revision-1 {
		return runtime.Errorf(runtime.CodeConflict, "another revision is stored")
	}
	s.environments[env.ID] = env
	return nil
}

func (s *memoryStore) PutFirst(_ context.Context, environments []runtime.Environment) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.environments) > 0 {
		return false, nil
	}
	for _, env := range environments {
		s.environments[env.ID] = env
	}
	return true, nil
}

func (s *memoryStore) DeleteEnvironment(_ context.Context, id runtime.EnvironmentID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.environments, id)
	return nil
}

func (s *memoryStore) Runners(_ context.Context, each func(runtime.Runner, []byte, error) error) error {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.runners))
	s.mu.Unlock()
	for _, r := range all {
		if err := each(r.runner, r.private, nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *memoryStore) PutRunner(_ context.Context, r runtime.Runner, private []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runners[r.ID] = storedRunner{r, private}
	s.said[r.ID] += r.Message + "\n"
	return nil
}

func (s *memoryStore) MarkRunner(_ context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.runners[id]
	switch {
	case !ok:
		return gone(id)
	case r.runner.Claim.Equal(claim):
		return nil
	case r.runner.Claim.Epoch != claim.Epoch-1:
		return runtime.Errorf(runtime.CodeConflict, "another claim is stored")
	}
	r.runner.Claim, r.runner.State = claim, runtime.RunnerClaimed
	s.runners[id] = r
	return nil
}

func (s *memoryStore) DeleteRunner(_ context.Context, id runtime.RunnerID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runners, id)
	return nil
}

func (s *memoryStore) Draining(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining, nil
}

func (s *memoryStore) SetDraining(_ context.Context, since time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = since
	return nil
}

// A bench is a cluster with its own directory and cgroups.
type bench struct {
	*Cluster
	t      testing.TB
	config Config
	store  *memoryStore
	stop   func() // ends Run and waits for it; may be called again
}

// newBench opens a cluster that doesn't run yet.
func newBench(t testing.TB) *bench {
	t.Helper()
	need.Sandboxes(t)
	dir := t.TempDir()
	store := newStore()
	b := &bench{t: t, store: store, config: Config{Store: store, Config: host.Config{
		Dir:          dir,
		Logger:       zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)),
		Agent:        sandboxtest.Agent(t),
		Helper:       sandboxtest.Helper(t),
		CgroupParent: fmt.Sprintf("rockpool/test-%d-%d", os.Getpid(), time.Now().UnixNano()),
	}, Images: image.Config{Image: tree.Limits{Bytes: 10 << 30}, Bytes: 20 << 30, Within: 30 * time.Minute}}}
	b.open()
	return b
}

func (b *bench) open() {
	b.t.Helper()
	c, err := New(context.Background(), b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Cluster, b.stop = c, c.Close
}

// run lets the cluster run until the test ends, when nothing may be left.
func (b *bench) run() *bench {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	})
	if !b.config.Keep {
		b.t.Cleanup(func() {
			b.stop()
			b.nothingLeft()
		})
	}
	return b
}

func running(t testing.TB) *bench {
	t.Helper()
	return newBench(t).run()
}

// nothingLeft fails the test if anything that the cluster or its runners made is left.
func (b *bench) nothingLeft() {
	b.t.Helper()
	b.noRunnerLeft()
	if _, makers := b.processesAndMakers(); len(makers) > 0 {
		b.t.Errorf("makers %v are left", makers)
	}
	for _, tree := range b.host.Trees {
		if _, err := os.Stat(filepath.Join(tree.Mount, b.config.CgroupParent)); err == nil {
			b.t.Errorf("group %s is left in %s", b.config.CgroupParent, tree.Mount)
		}
	}
}

// noRunnerLeft fails the test if anything of a runner is left.
func (b *bench) noRunnerLeft() {
	b.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		b.t.Error(err)
	}
	if strings.Contains(string(mounts), b.config.Dir) {
		b.t.Errorf("mounts are left below %s", b.config.Dir)
	}
	for _, tree := range b.host.Trees {
		groups, err := os.ReadDir(filepath.Join(tree.Mount, b.config.CgroupParent))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.t.Error(err)
		}
		for _, g := range groups {
			if g.IsDir() {
				b.t.Errorf("group %s is left in %s", g.Name(), tree.Mount)
			}
		}
	}
	for _, sub := range []string{"runners", "state"} {
		left, err := os.ReadDir(filepath.Join(b.config.Dir, sub))
		if err != nil {
			b.t.Error(err)
		}
		for _, e := range left {
			b.t.Errorf("%s/%s is left", sub, e.Name())
		}
	}
	if held, err := b.host.Ranges.Held(b.config.Dir); err != nil || len(held) > 0 {
		b.t.Errorf("user ids are left: %v (%v)", held, err)
	}
	for _, pid := range b.processes() {
		b.t.Errorf("process %s is left", pid)
	}
}

// processes returns this machine's processes in the bench's cgroups or of its programs, except the
// maker, which ends with the server.
func (b *bench) processes() (found []string) {
	found, _ = b.processesAndMakers()
	return found
}

func (b *bench) processesAndMakers() (found, makers []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		exe, _ := os.Readlink(filepath.Join(filepath.Dir(file), "exe"))
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		pid := filepath.Base(filepath.Dir(file))
		switch {
		case sandboxtest.Within(string(text), b.config.CgroupParent):
			found = append(found, pid)
		case strings.HasPrefix(exe, b.config.Dir) && strings.HasPrefix(string(line), "rockpool-sandbox\x00"+helper.Maker+"\x00"):
			makers = append(makers, pid)
		case strings.HasPrefix(exe, b.config.Dir):
			found = append(found, pid)
		}
	}
	return found, makers
}

func hostEnvironment() runtime.Environment {
	return runtime.Environment{
		ID: "host", Revision: 1, RunnerRevision: 1, Image: "host", Isolation: runtime.IsolationNamespaces,
		Resources:   runtime.Resources{CPUMHz: 2000, MemoryMiB: 128, Processes: 48, WorkspaceMiB: 16},
		OutputLimit: 1 << 20,
	}
}

// begin starts a runner, and returns when it is IDLE.
func (b *bench) begin(env runtime.Environment) runtime.RunnerID {
	b.t.Helper()
	id := runtime.NewRunnerID()
	if err := b.Start(b.t.Context(), id, env, runtime.PriorityRefill); err != nil {
		b.t.Fatal(err)
	}
	if r := b.await(id, runtime.RunnerIdle); r.State != runtime.RunnerIdle {
		b.t.Fatalf("the runner is %s (%s): %s", r.State, r.GoneReason, r.Message)
	}
	return id
}

// await waits until a runner has this state, or is GONE.
func (b *bench) await(id runtime.RunnerID, state runtime.RunnerState) (r runtime.Runner) {
	b.t.Helper()
	wait.For(b.t, fmt.Sprintf("runner %s is %s, or gone", id, state), func() (ok bool) {
		r, ok = b.runner(id)
		return ok && (r.State == state || r.State == runtime.RunnerGone)
	})
	return r
}

func (b *bench) runner(id runtime.RunnerID) (runtime.Runner, bool) {
	b.t.Helper()
	all, err := b.Runners(b.t.Context(), "")
	if err != nil {
		b.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(r runtime.Runner) bool { return r.ID == id })
	if i < 0 {
		return runtime.Runner{}, false
	}
	return all[i], true
}

// sh runs a shell script in a runner, and returns its output and its exit.
func (b *bench) sh(id runtime.RunnerID, script string) (string, agent.Exit) {
	b.t.Helper()
	return b.shell(id, script, false)
}

// asRoot is sh as the runner's root user.
func (b *bench) asRoot(id runtime.RunnerID, script string) (string, agent.Exit) {
	b.t.Helper()
	return b.shell(id, script, true)
}

func (b *bench) shell(id runtime.RunnerID, script string, privileged bool) (string, agent.Exit) {
	b.t.Helper()
	conn, err := b.Dial(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := agent.StartExecution(b.t.Context(), conn, agent.Start{
		ID:        string(runtime.NewExecutionID()),
		Argv:      []string{"/bin/sh", "-c", script},
		Env:       []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + runtime.Home},
		TimeLimit: wait.Limit, Privileged: privileged,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	defer s.Close()
	var output strings.Builder
	for {
		event, err := s.Next()
		if err != nil {
			if err != io.EOF {
				b.t.Fatalf("%s: %v", script, err)
			}
			return output.String(), agent.Exit{}
		}
		output.Write(event.Data)
		if event.Kind == agent.KindExited {
			_ = s.Settled()
			return output.String(), event.Exit
		}
	}
}

// expect fails the test unless a script prints exactly this and exits with 0.
func (b *bench) expect(id runtime.RunnerID, script, output string) {
	b.t.Helper()
	got, exit := b.sh(id, script)
	if strings.TrimSpace(got) != output || exit.Code != 0 || exit.Signal != "" {
		b.t.Errorf("%s\ngot  %q, exit %d %s\nwant %q", script, got, exit.Code, exit.Signal, output)
	}
}

// slotOf returns the number of a runner's range of user ids.
func (b *bench) slotOf(id runtime.RunnerID) int {
	b.t.Helper()
	return *b.privateOf(id).Slot
}

// agentOf returns the agent's process, found through the cgroup.
func (b *bench) agentOf(id runtime.RunnerID) int {
	b.t.Helper()
	tree, _ := b.host.Trees.Controller("pids")
	group := filepath.Join(tree.Mount, b.config.CgroupParent, string(id))
	pids, err := cgroup.Processes(group)
	if tree.V2 {
		pids, err = cgroup.Processes(filepath.Join(group, cgroup.Agent))
	}
	if err != nil || len(pids) != 1 {
		b.t.Fatalf("processes of an idle runner: %v (%v)", pids, err)
	}
	return pids[0]
}

// freeze stops a process, and returns when all its threads are stopped. On a busy machine other
// threads can continue while the one that got the signal waits for a CPU.
func freeze(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "all threads are stopped", func() bool {
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(all) == 0 {
			t.Fatalf("process %d has no threads (%v)", pid, err)
		}
		return !slices.ContainsFunc(all, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && !strings.Contains(string(text), "\nState:\tT")
		})
	})
}

func (b *bench) privateOf(id runtime.RunnerID) runner.Record {
	b.t.Helper()
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	var p runner.Record
	if err := json.Unmarshal(b.store.runners[id].private, &p); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// placed allocates a runner's directory and user ids, and returns what undoes that.
func placed(t testing.TB, s *runner.Sandbox) *int {
	t.Helper()
	slot, err := s.Prepare(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// handleOf returns the record of a sandbox with this first process.
func handleOf(pid int, start uint64) runner.Process {
	return runner.Process{PID: pid, Start: start}
}
