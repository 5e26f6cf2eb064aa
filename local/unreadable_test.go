package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/network/access"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/sandboxtest"
)

// TestUnreadableCountersAreReported: counters that can't be read say nothing about
// the runner. It isn't GONE, what was counted before isn't given for what is
// counted now, and health has the path until the counters of all runners are read.
func TestUnreadableCountersAreReported(t *testing.T) {
	broken := filepath.Join(sandboxtest.OpenDir(t), "closed", "a")
	if err := errors.Join(os.MkdirAll(broken, 0o755), os.Chmod(filepath.Dir(broken), 0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Dir(broken), 0o755) })
	sound := t.TempDir()
	c := &Cluster{config: Config{Config: host.Config{Logger: zap.NewNop()}}, problems: health.NewProblems(zap.NewNop()), entries: map[runtime.RunnerID]*entry{}}
	for id, dir := range map[runtime.RunnerID]string{"a": broken, "b": sound} {
		group := cgroup.Group{Dir: dir, V2: true}
		c.entries[id] = &entry{
			id: id, info: runtime.Runner{ID: id, State: runtime.RunnerIdle},
			runner: runner.New(runner.Config{ID: id, Logger: c.config.Logger, Host: &host.Host{}}, runner.Status{State: runtime.RunnerIdle}),
		}
		c.entries[id].runner.Sandbox.Counters.Open(cgroup.Groups{Memory: group, Processes: group, CPU: group}, 0)
		t.Cleanup(c.entries[id].runner.Sandbox.Counters.Close)
	}
	counts(t, sound)
	sandboxtest.AsNobody(t, func() {
		for range 2 {
			if seen, err := c.Evidence(t.Context(), "a"); err == nil || runtime.CodeOf(err) != runtime.CodeInternal || !strings.Contains(err.Error(), "runner a") {
				t.Errorf("got %+v, %v, want INTERNAL that names runner a", seen, err)
			}
		}
	})
	if _, err := c.Evidence(t.Context(), "b"); err != nil {
		t.Errorf("the other runner: %v", err)
	}
	reported := func() []runtime.Problem {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.visible()
	}
	if got := reported(); len(got) != 1 || !strings.Contains(got[0].Message, broken) {
		t.Errorf("the problems are %+v", got)
	}
	c.entries["a"].info.State = runtime.RunnerGone
	if got := reported(); len(got) != 0 {
		t.Errorf("with a runner that is GONE, the problems are %+v", got)
	}
	c.entries["a"].info.State = runtime.RunnerIdle

	if err := os.Chmod(filepath.Dir(broken), 0o755); err != nil {
		t.Fatal(err)
	}
	counts(t, broken)
	if _, err := c.Evidence(t.Context(), "a"); err != nil {
		t.Errorf("readable again: %v", err)
	}
	if got := reported(); len(got) != 0 {
		t.Errorf("once the counters are read, the problems are %+v", got)
	}
}

// counts makes the files of a group that count.
func counts(t *testing.T, dir string) {
	t.Helper()
	for file, text := range map[string]string{"memory.events": "oom_kill 0\n", "pids.events": "max 0\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// A removingLauncher notes which sandboxes it was asked to remove.
type removingLauncher struct {
	host.Launcher
	removed []string
}

func (l *removingLauncher) Remove(_ context.Context, id, _ string) error {
	l.removed = append(l.removed, id)
	return nil
}

// unreadRunner returns a claimed runner whose process is this one, with a file in
// its group that can't be read, not even by root: it is a directory. The group is
// the real one's name below a directory of the test's.
func unreadRunner(t *testing.T) (c *Cluster, e *entry, process runner.Process, file string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut("\n"+string(text), "\n0::")
	if !found {
		need.Lacks(t, "the kernel shows no group of version 2 of this process:\n%s", text)
	}
	group, _, _ := strings.Cut(after, "\n")
	mount := sandboxtest.OpenDir(t)
	dir := filepath.Join(mount, group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	counts(t, dir)
	file = filepath.Join(dir, "memory.events")
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o755)); err != nil {
		t.Fatal(err)
	}
	c = &Cluster{
		config: Config{Config: host.Config{Logger: zap.NewNop()}, Store: newStore()}, entries: map[runtime.RunnerID]*entry{}, starts: fairqueue.NewLimiter(1), counts: runner.NewCounts(),
		host: &host.Host{Removals: make(fairqueue.Slots, 1), Launcher: &removingLauncher{}, Trees: cgroup.Hierarchies{{Mount: mount, Root: "/", V2: true}}},
	}
	started, err := helper.StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	process = handleOf(os.Getpid(), started)
	r := runtime.Runner{ID: "a", State: runtime.RunnerClaimed, Claim: runtime.Claim{Key: "k"}}
	c.network = access.Open(nil, access.Helper{}, c.config.Logger, c.problems)
	e = c.newEntry(r, runtime.PriorityRefill, runner.Record{Group: group, Slot: new(int), Process: &process})
	return c, e, process, file
}

// TestUnreadableRunnerIsKept: a file that can't be read says nothing about
// the runner. It isn't removed, and the server doesn't start without it.
func TestUnreadableRunnerIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, e, process, file := unreadRunner(t)
		before := e.info
		left := []*entry{e}
		for n := range 2 * restoreAtOnce { // the first one's error ends the wait for all
			r := before
			r.ID = runtime.RunnerID(fmt.Sprintf("a%d", n))
			other := c.newEntry(r, runtime.PriorityRefill, runner.Record{Group: e.runner.Sandbox.Group, Slot: new(int), Process: &process})
			left = append(left, other)
		}
		began := time.Now()
		err := c.restoreRunners(t.Context(), left)
		if took := time.Since(began); took > 11*time.Second { // each is tried for 10 s
			t.Errorf("that took %v", took)
		}
		if !errors.Is(err, unix.EISDIR) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "runner a") {
			t.Errorf("restoreRunners: %v", err)
		}
		if removed := c.host.Launcher.(*removingLauncher).removed; len(removed) != 0 || !reflect.DeepEqual(e.info, before) || e.removing {
			t.Errorf("removed is %q, and the runner is %+v", removed, e.info)
		}
	})
}

// TestTemporarilyUnreadableRunnerIsTakenOver: an error that passes ends no runner, and
// doesn't keep the server from starting.
func TestTemporarilyUnreadableRunnerIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e, saved, file := unreadRunner(t)
		time.AfterFunc(5100*time.Millisecond, func() { // between two tries
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
			counts(t, filepath.Dir(file))
		})
		handle, err := e.runner.Sandbox.Reattach(t.Context(), saved, 0)
		if err != nil {
			t.Fatal(err)
		}
		handle.Close()
		e.runner.Sandbox.Counters.Close()
	})
}
