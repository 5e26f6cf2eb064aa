package engine

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// TestActivity checks that present counts are right, and that one tenant gets only its own.
func TestActivity(t *testing.T) {
	b := newBed(t)
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "a", Shared: ptr(true), PoolSize: ptr(0)}); err != nil {
		t.Fatal(err)
	}
	claim := func(tenant runtime.TenantID) runtime.Runner {
		r, err := b.Runners.Claim(as(t, tenant), request.Claim{EnvironmentID: "a", WaitFor: ptr(patient)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	mine, theirs := claim("x"), claim("y")
	if x := b.run(t, mine.ID, "exit", "3"); x.Passed() {
		t.Fatalf("%+v", x)
	}
	b.run(t, mine.ID, "echo", "well")
	for range 2 {
		b.run(t, theirs.ID, "exit", "1")
	}
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: mine.ID, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	starts := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	t.Cleanup(func() { close(starts) })
	leave := b.waits(t, request.Claim{EnvironmentID: "a", Tenant: "y"})
	for tenant, want := range map[runtime.TenantID]runtime.Activity{
		"x": {ExecutionsRunning: 1, FailuresPerMinute: 1},
		"y": {FailuresPerMinute: 2, ClaimsWaiting: 1},
		"":  {ExecutionsRunning: 1, FailuresPerMinute: 3, ClaimsWaiting: 1},
	} {
		ctx := as(t, tenant)
		if tenant == "" {
			ctx = asServer(t)
		}
		wait.For(t, "the program runs", func() bool { return b.activity(ctx, t).ExecutionsPending == 0 })
		if got := b.activity(ctx, t); got != want {
			t.Errorf("of %q: %+v, want %+v", tenant, got, want)
		}
	}
	leave()
	if x, err = b.Executions.Cancel(asServer(t), x.ID); err != nil {
		t.Fatal(err)
	}
	b.await(t, x.ID)
	if got, want := b.activity(asServer(t), t), (runtime.Activity{FailuresPerMinute: 3}); got != want {
		t.Errorf("in the end: %+v, want %+v", got, want)
	}
}

// activity returns what a caller sees.
func (b *bed) activity(ctx context.Context, t *testing.T) runtime.Activity {
	t.Helper()
	a, err := b.Server.Activity(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// alertHistory returns the past alerts that a caller sees.
func (b *bed) alertHistory(ctx context.Context, t *testing.T) []runtime.PoolAlert {
	t.Helper()
	all, err := b.Environments.AlertHistory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// standingAlerts returns all standing alerts.
func (b *bed) standingAlerts(t *testing.T) []runtime.PoolAlert {
	t.Helper()
	all, err := b.Environments.Alerts(asServer(t))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A drainable cluster only reports that it drains.
type drainable struct {
	runtime.Cluster
	drains atomic.Bool
}

func (c *drainable) SetDraining(_ context.Context, draining bool) error {
	c.drains.Store(draining)
	return nil
}

func (c *drainable) Draining() bool { return c.drains.Load() }

// TestAlertHistory checks that raised and resolved alerts are kept even of a deleted environment,
// and that a drained pool doesn't affect health.
func TestAlertHistory(t *testing.T) {
	b := newBed(t)
	b.stop()
	cluster := &drainable{Cluster: b.fake}
	b.cluster = cluster
	b.start(t)
	b.fake.OnStart(func(runtime.RunnerID) error { return errors.New("no room") })
	b.environment(t, "low", 0)
	leave := b.waits(t, request.Claim{EnvironmentID: "low"})
	wait.For(t, "a start fails", func() bool {
		s, _ := b.Environments.PoolStatus(runtime.Environment{ID: "low"})
		return s.Reason == "no room"
	}) // otherwise the alert may be raised first
	leave()
	b.environment(t, "low", 1)
	history := func() string {
		var all []string
		for _, alert := range b.alertHistory(asServer(t), t) {
			all = append(all, string(alert.EnvironmentID)+" "+string(alert.State)+" "+alert.Reason)
		}
		return strings.Join(all, "; ")
	}
	const raised = "low RAISED no room"
	wait.For(t, "the alert is remembered", func() bool { return history() == raised })
	if err := b.Server.SetDraining(asServer(t), true); err != nil {
		t.Fatal(err)
	}
	b.environmentRegistry.Pool("low").Hint()
	const resolved = "low RESOLVED the cluster is being drained; " + raised
	wait.For(t, "its end is", func() bool { return history() == resolved })
	if c := b.component(t, "pool low"); c.Status != activity.HealthOK || !strings.Contains(c.Message, "drained") {
		t.Errorf("got %+v, want OK of a drained cluster", c)
	}
	if !b.activity(asServer(t), t).Draining || len(b.standingAlerts(t)) != 0 {
		t.Error("it isn't drained, or alerts stand")
	}
	if _, err := b.Environments.Delete(asServer(t), "low", false); err != nil {
		t.Fatal(err)
	}
	if got := history(); got != resolved {
		t.Errorf("after its deletion: got %s, want %s", got, resolved)
	}
	if hidden := b.alertHistory(as(t, "somebody else"), t); len(hidden) != 0 {
		t.Errorf("for somebody else: %+v", hidden)
	}
}
