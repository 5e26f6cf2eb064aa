package nomad

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/state"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// A bed is a cluster under test with one environment.
type bed struct {
	*Cluster
	t   *testing.T
	n   *nomadtest.Nomad
	env runtime.Environment
}

func newBed(t *testing.T) bed {
	t.Helper()
	n := raw.Nomad(t)
	return bedOn(t, n, config(t, n, job.RawExec))
}

func bedOn(t *testing.T, n *nomadtest.Nomad, config Config) bed {
	t.Helper()
	b := bed{Cluster: start(t, config), t: t, n: n, env: rawEnvironment()}
	b.env.ID, b.env.Revision, b.env.RunnerRevision = "a", 1, 1
	if err := b.PutEnvironment(t.Context(), b.env); err != nil {
		t.Fatal(err)
	}
	return b
}

// idle starts a runner and waits until it is idle.
func (b bed) idle() runtime.RunnerID {
	b.t.Helper()
	id := runtime.NewRunnerID()
	if err := b.Start(b.t.Context(), id, b.env, runtime.PriorityRefill); err != nil {
		b.t.Fatal(err)
	}
	b.await(id, runtime.RunnerIdle)
	return id
}

func (b bed) claimed() runtime.RunnerID {
	b.t.Helper()
	id := b.idle()
	b.mark(id, 1)
	return id
}

func (b bed) mark(id runtime.RunnerID, epoch int) {
	b.t.Helper()
	claim := runtime.Claim{Epoch: epoch, Key: "k", ClaimedAt: time.Unix(1_700_000_000, 0), InactivityTimeout: time.Minute}
	if err := b.Mark(b.t.Context(), id, claim); err != nil {
		b.t.Fatal(err)
	}
}

func (b bed) find(id runtime.RunnerID) (runtime.Runner, bool) {
	b.t.Helper()
	all, err := b.Runners(b.t.Context(), "")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range all {
		if r.ID == id {
			return r, true
		}
	}
	return runtime.Runner{}, false
}

func (b bed) await(id runtime.RunnerID, state runtime.RunnerState) (r runtime.Runner) {
	b.t.Helper()
	wait.For(b.t, fmt.Sprintf("runner %s is %s", id, state), func() (ok bool) {
		r, ok = b.find(id)
		if ok && r.State == runtime.RunnerGone && state != runtime.RunnerGone {
			b.t.Fatalf("runner is gone (%s): %s, want it %s", r.GoneReason, r.Message, state)
		}
		return ok && r.State == state
	})
	return r
}

// allocation returns a runner's allocation from Nomad.
func (b bed) allocation(id runtime.RunnerID) *api.Allocation {
	b.t.Helper()
	all, _, err := b.n.API().Jobs().Allocations(b.names().Runner(id), true, nil)
	if err != nil || len(all) == 0 {
		b.t.Fatalf("%d allocations, %v", len(all), err)
	}
	a, _, err := b.n.API().Allocations().Info(all[0].ID, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// toldRunning waits until Nomad reports that a runner runs, a second after it does.
func (b bed) toldRunning(id runtime.RunnerID) {
	b.t.Helper()
	wait.For(b.t, "Nomad says that it runs", func() bool { return b.allocation(id).ClientStatus == api.AllocClientStatusRunning })
}

// run runs a command in a runner and returns what it printed.
func (b bed) run(id runtime.RunnerID, argv ...string) string {
	b.t.Helper()
	conn, err := b.Dial(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	session, err := agent.StartExecution(b.t.Context(), conn, agent.Start{
		ID: string(runtime.NewExecutionID()), Argv: argv, Env: []string{"PATH=/usr/bin:/bin"},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	defer session.Close()
	var printed []byte
	for {
		event, err := session.Next()
		if err != nil {
			b.t.Fatal(err)
		}
		switch event.Kind {
		case agent.KindOutput:
			printed = append(printed, event.Data...)
		case agent.KindExited:
			return string(printed)
		}
	}
}

// processesOf returns the processes that have an allocation in their command
// line or as their directory.
func processesOf(t *testing.T, allocation string) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, dir := range dirs {
		line, _ := os.ReadFile(dir + "/cmdline")
		cwd, _ := os.Readlink(dir + "/cwd")
		if text := string(line) + " " + cwd; strings.Contains(text, allocation) {
			all = append(all, strings.ReplaceAll(text, "\x00", " "))
		}
	}
	return all
}

func TestRemoveEndsAllProcesses(t *testing.T) {
	b := newBed(t)
	id := b.claimed()
	a := b.allocation(id)
	if len(processesOf(t, a.ID)) == 0 {
		t.Fatal("no process of the runner was found while it runs")
	}
	if err := b.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if left := processesOf(t, a.ID); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if job, err := b.nomad.Job(t.Context(), b.names().Runner(id)); job != nil || err != nil {
		t.Errorf("its job is left: %v, %v", job, err)
	}
	if r, err := b.records.Read(t.Context(), id); r != nil || err != nil {
		t.Errorf("its variable is left: %v, %v", r, err)
	}
}

func TestClaimDoesNotChangeTheAllocation(t *testing.T) {
	b := newBed(t)
	id := b.idle()
	before := b.allocation(id)
	for epoch := range 20 {
		b.mark(id, epoch+1)
	}
	b.toldRunning(id)
	after := b.allocation(id)
	if after.ID != before.ID || after.TaskStates[job.TaskName].Restarts != 0 || *after.Job.Version != *before.Job.Version {
		t.Errorf("allocation %s, %d restarts, job version %d; before: %s, version %d",
			after.ID, after.TaskStates[job.TaskName].Restarts, *after.Job.Version, before.ID, *before.Job.Version)
	}
	if got := b.run(id, "echo", "hi"); got != "hi\n" {
		t.Errorf("it prints %q", got)
	}
}

// Every end of a runner outside of Rockpool is reported with the right reason, whether the runner
// was idle or claimed.
func TestEndOfARunnerHasItsReason(t *testing.T) {
	jobs := func(b bed) *api.Jobs { return b.n.API().Jobs() }
	for name, test := range map[string]struct {
		end    func(b bed, id runtime.RunnerID) error
		reason runtime.GoneReason
	}{
		"job stopped": {func(b bed, id runtime.RunnerID) error {
			_, _, err := jobs(b).Deregister(b.names().Runner(id), false, nil)
			return err
		}, runtime.GoneStoppedOutside},
		"job purged": {func(b bed, id runtime.RunnerID) error {
			_, _, err := jobs(b).Deregister(b.names().Runner(id), true, nil)
			return err
		}, runtime.GoneStoppedOutside},
		"allocation stopped": {func(b bed, id runtime.RunnerID) error {
			_, err := b.n.API().Allocations().Stop(b.allocation(id), nil)
			return err
		}, runtime.GoneStoppedOutside},
		"agent killed": {func(b bed, id runtime.RunnerID) error {
			return b.n.API().Allocations().Signal(b.allocation(id), nil, job.TaskName, "SIGKILL")
		}, runtime.GoneAgentDied},
		"task restarted": {func(b bed, id runtime.RunnerID) error {
			return b.n.API().Allocations().Restart(b.allocation(id), job.TaskName, nil)
		}, runtime.GoneAgentDied},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			for _, id := range []runtime.RunnerID{b.idle(), b.claimed()} {
				b.toldRunning(id) // before, Nomad lets a task neither be signalled nor restarted
				if err := test.end(b, id); err != nil {
					t.Fatal(err)
				}
				if r := b.awaitGone(id); r.GoneReason != test.reason {
					t.Errorf("it is gone with %s (%s), want %s", r.GoneReason, r.Message, test.reason)
				}
				if _, err := b.Dial(t.Context(), id); runtime.CodeOf(err) != runtime.CodeRunnerGone {
					t.Errorf("dial: got %v, want RUNNER_GONE", err)
				}
				if err := b.Remove(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// awaitGone waits until a runner is gone.
func (b bed) awaitGone(id runtime.RunnerID) (r runtime.Runner) {
	b.t.Helper()
	wait.For(b.t, fmt.Sprintf("runner %s is gone", id), func() (ok bool) {
		if r, ok = b.find(id); !ok {
			b.t.Fatal("the runner is no longer listed")
		}
		return r.State == runtime.RunnerGone
	})
	return r
}

func TestRestartedServerTakesOver(t *testing.T) {
	n := raw.Nomad(t)
	first := config(t, n, job.RawExec)
	first.Dir = t.TempDir()
	a, err := New(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	b := bed{Cluster: a, t: t, n: n, env: rawEnvironment()}
	b.env.ID, b.env.Revision, b.env.RunnerRevision, b.env.PoolSize = "a", 1, 1, 3
	if err := b.PutEnvironment(t.Context(), b.env); err != nil {
		t.Fatal(err)
	}
	idle, claimed := b.idle(), b.claimed()
	b.mark(claimed, 2)
	was, _ := b.find(claimed)
	purged := b.claimed()
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v, want %v", err, context.Canceled)
	}
	if _, _, err := n.API().Jobs().Deregister(a.names().Runner(purged), true, nil); err != nil {
		t.Fatal(err)
	}

	b.Cluster = start(t, first)
	environments, err := b.Environments(t.Context())
	if err != nil || len(environments) != 1 || environments[0].PoolSize != 3 || environments[0].Revision != 1 {
		t.Errorf("environments: %+v, %v", environments, err)
	}
	all, err := b.Runners(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	states := map[runtime.RunnerID]runtime.RunnerState{}
	for _, r := range all {
		states[r.ID] = r.State
	}
	if states[idle] != runtime.RunnerIdle || states[claimed] != runtime.RunnerClaimed || states[purged] != runtime.RunnerGone || len(all) != 3 {
		t.Errorf("the first list: %v", states)
	}
	if r, _ := b.find(claimed); !r.Claim.Equal(was.Claim) || !r.CreatedAt.Equal(was.CreatedAt) || !r.Environment.SameRunners(was.Environment) {
		t.Errorf("claimed: %+v\nbefore: %+v", r, was)
	}
	for _, id := range []runtime.RunnerID{idle, claimed} {
		if got := b.run(id, "echo", "hi"); got != "hi\n" {
			t.Errorf("it prints %q", got)
		}
	}
	b.mark(claimed, 3)
	b.mark(idle, 1)
}

func TestStandbyTakesOver(t *testing.T) {
	n := raw.Nomad(t)
	shared := config(t, n, job.RawExec)
	a, err := New(t.Context(), shared)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	if _, err := a.Environments(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby := start(t, shared)
	says := func() bool { return strings.Contains(problem(t, standby, "lock"), "waits") }
	wait.For(t, "its status says that it waits", says)
	if standby.serves() {
		t.Error("a standby serves")
	}
	stop()
	<-ended
	if _, err := standby.Environments(t.Context()); err != nil {
		t.Fatal(err)
	}
	if says() {
		t.Error("Status still reports that the server waits for the lock")
	}
}

// A killed server's lock lasts for a while. The next server with its directory continues
// immediately; another one waits.
func TestRestartAfterAKillContinuesImmediately(t *testing.T) {
	n := raw.Nomad(t)
	killed := config(t, n, job.RawExec)
	killed.Dir, killed.LockTTL = t.TempDir(), time.Hour
	a, err := New(t.Context(), killed)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.lock.Acquire(t.Context()); err != nil { // and never releases, or renews it
		t.Fatal(err)
	}
	other := killed
	other.Dir = t.TempDir()
	stranger, err := New(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	ctx, stop := context.WithCancel(t.Context())
	acquired := make(chan error, 1)
	go func() {
		_, err := stranger.lock.Acquire(ctx)
		acquired <- err
	}()
	wait.For(t, "another server says that it waits", func() bool {
		return len(acquired) > 0 || strings.Contains(problem(t, stranger, "lock"), "waits")
	})
	stop()
	if err := <-acquired; !errors.Is(err, context.Canceled) {
		t.Errorf("another server owns it too: got %v, want %v", err, context.Canceled)
	}
	next := start(t, killed)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit) // far below the lock's TTL
	defer cancel()
	if _, err := next.Environments(ctx); err != nil {
		t.Errorf("the next server: %v", err)
	}
}

// A server that can't renew its lock in time ends before another one begins.
func TestServerWithoutItsLockEnds(t *testing.T) {
	n := raw.Nomad(t)
	settings := config(t, n, job.RawExec)
	settings.Logger = nil               // it may outlive a test that fails
	settings.LockTTL = 20 * time.Second // it is renewed five times as often
	c, err := New(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	if _, err := c.Environments(t.Context()); err != nil {
		t.Fatal(err)
	}
	vars := n.API().Variables()
	held, _, err := vars.Read(c.names().Lock(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := vars.ReleaseLock(&api.Variable{Path: held.Path, Lock: held.Lock}, nil); err != nil {
		t.Fatal(err)
	}
	if err := wait.Receive(t, ended, "the end of a server without its lock"); !errors.Is(err, state.ErrLost) {
		t.Errorf("Run returned %v, want %v", err, state.ErrLost)
	}
}
