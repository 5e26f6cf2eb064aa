package engine

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// TestActivity checks that present counts are right, and that one tenant gets only its own.
func TestActivity(t *testing.T) {
	b := newBed(t)
	if _, _, err := b.PutEnvironment(t.Context(), PutEnvironmentInput{ID: "a", Shared: ptr(true), PoolSize: ptr(0)}); err != nil {
		t.Fatal(err)
	}
	claim := func(tenant runtime.TenantID) runtime.Runner {
		r, err := b.Claim(t.Context(), ClaimInput{EnvironmentID: "a", Tenant: tenant, WaitFor: ptr(patient)})
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
	x, err := b.Start(t.Context(), StartInput{RunnerID: mine.ID, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	starts := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	t.Cleanup(func() { close(starts) })
	leave := b.waits(t, ClaimInput{EnvironmentID: "a", Tenant: "y"})
	for tenant, want := range map[runtime.TenantID]runtime.Activity{
		"x": {ExecutionsRunning: 1, FailuresPerMinute: 1},
		"y": {FailuresPerMinute: 2, ClaimsWaiting: 1},
		"":  {ExecutionsRunning: 1, FailuresPerMinute: 3, ClaimsWaiting: 1},
	} {
		of := &tenant
		if tenant == "" {
			of = nil
		}
		wait.For(t, "the program runs", func() bool { return b.Activity(t.Context(), of).ExecutionsPending == 0 })
		if got := b.Activity(t.Context(), of); got != want {
			t.Errorf("of %q: %+v, want %+v", tenant, got, want)
		}
	}
	leave()
	if x, err = b.Cancel(t.Context(), x.ID); err != nil {
		t.Fatal(err)
	}
	b.await(t, x.ID)
	if got, want := b.Activity(t.Context(), nil), (runtime.Activity{FailuresPerMinute: 3}); got != want {
		t.Errorf("in the end: %+v, want %+v", got, want)
	}
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
	leave := b.waits(t, ClaimInput{EnvironmentID: "low"})
	wait.For(t, "a start fails", func() bool { s, _ := b.PoolStatus("low"); return s.Reason == "no room" }) // otherwise the alert may be raised first
	leave()
	b.environment(t, "low", 1)
	history := func() string {
		var all []string
		for _, alert := range b.PoolAlertHistory(seesEnvironment) {
			all = append(all, string(alert.EnvironmentID)+" "+string(alert.State)+" "+alert.Reason)
		}
		return strings.Join(all, "; ")
	}
	const raised = "low RAISED no room"
	wait.For(t, "the alert is remembered", func() bool { return history() == raised })
	if err := b.SetDraining(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	b.catalog.pool("low").Hint()
	const resolved = "low RESOLVED the cluster is being drained; " + raised
	wait.For(t, "its end is", func() bool { return history() == resolved })
	if c := b.poolHealth("low"); c.Status != HealthOK || !strings.Contains(c.Message, "being drained") {
		t.Errorf("%+v", c)
	}
	if !b.Activity(t.Context(), nil).Draining || len(b.PoolAlerts(seesEnvironment)) != 0 {
		t.Error("it isn't drained, or alerts stand")
	}
	if _, err := b.DeleteEnvironment(t.Context(), "low", false, seesEnvironment); err != nil {
		t.Fatal(err)
	}
	if got := history(); got != resolved {
		t.Errorf("after its deletion: %s", got)
	}
	if hidden := b.PoolAlertHistory(func(runtime.Environment) bool { return false }); len(hidden) != 0 {
		t.Errorf("for somebody else: %+v", hidden)
	}
}
