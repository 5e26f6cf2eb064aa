package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// results returns the counted claims of an environment.
func (b *bed) results(id runtime.EnvironmentID) map[string]int64 {
	all := map[string]int64{}
	for result, n := range b.Stats().Claims[id].Results {
		if n > 0 {
			all[result] = n
		}
	}
	return all
}

func TestClaimsAreCounted(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 0)
	none := request.Claim{EnvironmentID: "a"}
	_, err := b.Runners.Claim(asServer(t), none)
	refusal.Want(t, err, runtime.CodeNoRunnerAvailable, "")
	first := b.claim(t, "a")
	b.claim(t, "a")
	keyed := request.Claim{EnvironmentID: "a", WaitFor: ptr(patient), Key: "k"}
	for range 2 { // the second is answered with the first one's runner
		if _, err := b.Runners.Claim(asServer(t), keyed); err != nil {
			t.Fatal(err)
		}
	}
	_, err = b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: "a", Key: "k", InactivityTimeout: ptr(1)})
	refusal.Want(t, err, runtime.CodeConflict, "")
	if x, err := b.Executions.Run(asServer(t), request.Run{EnvironmentID: "a", WaitFor: ptr(patient), Command: []string{"true"}}); err != nil {
		t.Fatal(err)
	} else {
		b.await(t, x.ID)
	}
	b.fake.StartDelay(time.Hour)
	impatient, leave := context.WithCancel(asServer(t))
	left := make(chan error, 1)
	go func() {
		_, err := b.Runners.Claim(impatient, request.Claim{EnvironmentID: "a", WaitFor: ptr(3600)})
		left <- err
	}()
	wait.For(t, "a claim waits", func() bool { s, _ := b.Environments.PoolStatus(runtime.Environment{ID: "a"}); return s.Waiting == 1 })
	leave()
	if err := wait.Receive(t, left, "the claim ends"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if diff := cmp.Diff(map[string]int64{activity.ClaimMade: 5, activity.ClaimLeft: 1, "NO_RUNNER_AVAILABLE": 1, "CONFLICT": 1}, b.results("a")); diff != "" {
		t.Error(diff)
	}
	if took := b.Stats().Claims["a"].Took; took.Count() != 5 || took.Sum <= 0 {
		t.Errorf("%+v", took)
	}

	// Names of environments that don't exist make no series of their own.
	for i := range 10 {
		_, err := b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: runtime.EnvironmentID(fmt.Sprint("made up ", i))})
		refusal.Want(t, err, runtime.CodeEnvironmentNotFound, "")
	}
	if diff := cmp.Diff(map[string]int64{"ENVIRONMENT_NOT_FOUND": 10}, b.results("")); diff != "" || len(b.Stats().Claims) != 2 {
		t.Errorf("%d environments, %s", len(b.Stats().Claims), diff)
	}
	if _, err := b.Environments.Delete(asServer(t), "a", true); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "a deleted environment has no figures", func() bool {
		s := b.Stats()
		return len(s.Claims) == 1 && len(s.Pools) == 0
	})
	if _, err := b.Runners.Release(asServer(t), first.ID); err != nil {
		t.Error(err)
	}
}

func TestExecutionsAreCounted(t *testing.T) {
	b, r := keeping(t, Config{KeepBytes: 1 << 20})
	for range 2 {
		b.run(t, r.ID, "echo", "eleven plus")
	}
	b.run(t, r.ID, "exit", "3")
	slow := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"sleep", "30"}, TimeLimit: ptr(1)})
	b.await(t, slow.ID)
	endless := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"sleep", "60"}})
	want := func(want activity.Stats) {
		t.Helper()
		ignored := cmpopts.IgnoreFields(activity.Stats{}, "Claims", "Pools", "Starting", "Watchers", "Kept")
		got := b.Stats()
		maps.DeleteFunc(got.Finished, func(_ runtime.Outcome, n int64) bool { return n == 0 })
		if diff := cmp.Diff(want, got, ignored); diff != "" {
			t.Error(diff)
		}
	}
	wait.For(t, "all starts are counted", func() bool { return b.Stats().Starting.Count() == 5 })
	want(activity.Stats{Started: 5, Finished: map[runtime.Outcome]int64{"EXITED": 3, "TIME_LIMIT": 1}, Unfinished: 1, Output: 24, KeepLimit: 1 << 20})
	if s := b.Stats(); s.Kept == 0 || s.Starting.Count() != 5 {
		t.Errorf("%+v", s)
	}

	b.stop()
	b.start(t)
	want(activity.Stats{Resumed: 1, Finished: map[runtime.Outcome]int64{}, Unfinished: 1, KeepLimit: 1 << 20})
	if _, err := b.Executions.Cancel(asServer(t), endless.ID); err != nil {
		t.Fatal(err)
	}
	b.await(t, endless.ID)
	x := b.run(t, r.ID, "lines", "3145728") // three times as much as may be kept
	_, all := b.events(t, x.ID, "")
	var lost int64
	for _, e := range all {
		lost += e.Bytes
	}
	s := b.Stats()
	if lost == 0 || s.OutputLost != lost || s.Output+s.OutputLost != 3145728 {
		t.Errorf("%d and %d lost were counted; %d were reported", s.Output, s.OutputLost, lost)
	}
	if s.Collected != 5 { // all that had ended, for room
		t.Errorf("%d collected, want 5", s.Collected)
	}
	if s.Starting.Count() != 1 {
		t.Errorf("%d starts: one that was resumed is none, want 1", s.Starting.Count())
	}
}

func TestWatchersAreCounted(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	ctx, cancel := context.WithCancel(asServer(t))
	defer cancel()
	if _, err := b.Runners.Watch(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []runtime.EnvironmentID{"", "a"} {
		if _, err := b.Environments.WatchPools(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Environments.WatchAlerts(ctx, ""); err != nil {
		t.Fatal(err)
	}
	starts := make(chan struct{})
	defer close(starts)
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	b.environment(t, "b", 0)
	waits, err := b.Tickets.Open(asServer(t), request.Claim{EnvironmentID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Tickets.Watch(ctx, waits.ID); err != nil {
		t.Fatal(err)
	}
	left := b.CountSubscription(activity.WatchExecution)
	counted := func(want map[activity.WatchKind]int64) func() bool {
		return func() bool { return cmp.Equal(want, b.Stats().Watchers) }
	}
	wait.For(t, "all watchers are counted", counted(map[activity.WatchKind]int64{activity.WatchExecution: 1, activity.WatchRunners: 1, activity.WatchPools: 2, activity.WatchPoolAlerts: 1, activity.WatchTickets: 1, activity.WatchFileChanges: 0}))
	left()
	cancel()
	wait.For(t, "all have left", counted(map[activity.WatchKind]int64{activity.WatchExecution: 0, activity.WatchRunners: 0, activity.WatchPools: 0, activity.WatchPoolAlerts: 0, activity.WatchTickets: 0, activity.WatchFileChanges: 0}))
}

// TestStatsWaitForNoPool reads Stats while the owner of a pool is stuck.
func TestStatsWaitForNoPool(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	wait.For(t, "one is idle", func() bool { return b.Stats().Pools[0].Idle == 1 })
	held, release := make(chan struct{}), make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { // the owner is to wait for it
		b.runnerIndex.feed.Remove(b.runnerIndex.feed.Watch("", func(runtime.Runner) bool { return true }, func(func(runtime.Runner)) { close(held); <-release }))
	})
	<-held
	goOn := sync.OnceFunc(func() { close(release); watch.Wait() })
	defer goOn()
	claimed := make(chan error, 1)
	go func() {
		_, err := b.Runners.Claim(context.WithoutCancel(asServer(t)), request.Claim{EnvironmentID: "a"})
		claimed <- err
	}()
	wait.For(t, "the owner is stuck", func() bool {
		r := b.runnerIndex.list(request.Runners{EnvironmentID: "a", States: []runtime.RunnerState{runtime.RunnerClaiming}})
		return len(r) == 1
	})
	read := make(chan activity.Stats, 1)
	go func() { read <- b.Stats() }()
	if s := wait.Receive(t, read, "figures that don't wait for the owner"); s.Pools[0].Idle != 1 { // as it was last published
		t.Errorf("%+v", s.Pools)
	}
	goOn()
	if err := <-claimed; err != nil {
		t.Error(err)
	}
}

func BenchmarkStats(b *testing.B) {
	bed := newBed(b)
	bed.environment(b, "a", 1000)
	wait.For(b, "all are idle", func() bool { return bed.Stats().Pools[0].Idle == 1000 })
	b.ReportAllocs()
	for b.Loop() {
		bed.Stats()
	}
}
