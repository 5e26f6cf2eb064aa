package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

func TestPoolAlertsAreWatched(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(asServer(t))
	all, err := b.Environments.WatchAlerts(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Environments.WatchAlerts(ctx, "none")
	refusal.Want(t, err, runtime.CodeEnvironmentNotFound, "")

	b.fake.OnStart(func(runtime.RunnerID) error { return errors.New("no room") })
	b.environment(t, "low", 1)
	b.environment(t, "none", 0)
	for alert := range all {
		if alert.EnvironmentID == "low" && alert.State == runtime.PoolAlertRaised && alert.Reason == "no room" {
			break
		}
	}
	late, err := b.Environments.WatchAlerts(ctx, "") // gets what stands
	if err != nil {
		t.Fatal(err)
	}
	if alert := <-late; !alert.Standing() || alert.EnvironmentID != "low" {
		t.Errorf("first %+v", alert)
	}
	if alerts := b.standingAlerts(t); len(alerts) != 1 || alerts[0].EnvironmentID != "low" {
		t.Errorf("standing: %+v", alerts)
	}
	if h := b.Health(asServer(t)); h.Status != activity.HealthDegraded {
		t.Errorf("health: %+v", h)
	}
	one, err := b.Environments.WatchAlerts(ctx, "low")
	if err != nil {
		t.Fatal(err)
	}
	last := <-one
	if _, err := b.Environments.Delete(asServer(t), "low", false); err != nil {
		t.Fatal(err)
	}
	for last = range one { // until the pool has ended
	}
	if last.State != runtime.PoolAlertResolved {
		t.Errorf("last %+v", last)
	}
	for alert := range all {
		if alert.State == runtime.PoolAlertResolved {
			break
		}
	}
	cancel()
	for range all { // closed
	}
	for range late {
	}
}

func TestRunnersAreWatched(t *testing.T) {
	b := newBed(t)
	b.environment(t, "other", 1)
	b.environment(t, "a", 1)
	first := b.claim(t, "a")
	ctx, cancel := context.WithCancel(asServer(t))
	_, err := b.Runners.Watch(ctx, "none")
	refusal.Want(t, err, runtime.CodeEnvironmentNotFound, "")
	events, err := b.Runners.Watch(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[runtime.RunnerID]runtime.RunnerState{}
	until := func(id runtime.RunnerID, state runtime.RunnerState) {
		t.Helper()
		for event := range events {
			r := event.Runner
			if r.Environment.ID != "a" || event.At.IsZero() || seen[r.ID] == r.State || r.State.Before(seen[r.ID]) {
				t.Fatalf("%+v after %s", event, seen[r.ID])
			}
			if seen[r.ID] = r.State; r.ID == id && r.State == state {
				return
			}
		}
	}
	until(first.ID, runtime.RunnerClaimed) // as it was before
	second := b.claim(t, "a")
	until(second.ID, runtime.RunnerClaimed)
	if _, err := b.Runners.Release(asServer(t), first.ID); err != nil {
		t.Fatal(err)
	}
	until(first.ID, runtime.RunnerGone)

	// Nobody receives while 50 runners start and end: the queue doesn't grow with them.
	for range 50 {
		r := b.claim(t, "a")
		if _, err := b.Runners.Release(asServer(t), r.ID); err != nil {
			t.Fatal(err)
		}
	}
	last := b.claim(t, "a")
	told := 0
	for event := range events {
		told++
		if event.Runner.ID == last.ID && event.Runner.State == runtime.RunnerClaimed {
			break
		}
	}
	if told > 10 {
		t.Errorf("%d events waited", told)
	}
	cancel()
	for range events { // closed
	}
	if n := b.Stats().Watchers[activity.WatchRunners]; n != 0 {
		t.Errorf("%d watchers stay, want 0", n)
	}
}

func TestRunnersOfADeletedEnvironment(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	b.environment(t, "other", 1)
	b.claim(t, "a")
	ctx, cancel := context.WithTimeout(asServer(t), wait.Limit)
	defer cancel()
	events, err := b.Runners.Watch(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	there := map[runtime.RunnerID]runtime.RunnerState{}
	first := <-events
	there[first.Runner.ID] = first.Runner.State
	if _, err := b.Environments.Delete(ctx, "a", true); err != nil {
		t.Fatal(err)
	}
	for event := range events {
		there[event.Runner.ID] = event.Runner.State
	}
	if ctx.Err() != nil {
		t.Error("it never ends")
	}
	for id, state := range there {
		if state != runtime.RunnerGone {
			t.Errorf("the last of %s is %s, want %s", id, state, runtime.RunnerGone)
		}
	}
}

// TestRunWaitsForSubscribers uses subscribers that neither read nor leave. Run ends their channels.
func TestRunWaitsForSubscribers(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	pools, err := b.Environments.WatchPools(context.WithoutCancel(asServer(t)), "a")
	if err != nil {
		t.Fatal(err)
	}
	runners, err := b.Runners.Watch(context.WithoutCancel(asServer(t)), "a")
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	for name, open := range map[string]func() bool{
		"pools":   func() bool { _, open := <-pools; return open },
		"runners": func() bool { _, open := <-runners; return open },
	} {
		if open() {
			t.Errorf("the channel of %s is open", name)
		}
	}
	_, err = b.Environments.WatchPools(asServer(t), "")
	refusal.Want(t, err, runtime.CodeClusterUnavailable, "", "after the end:")
}
