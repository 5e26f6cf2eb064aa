package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/ticket"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// TestNameOfADeletedTenantIsFreeOnceItsObjectsAreGone checks this, because a new tenant would see
// the objects.
func TestNameOfADeletedTenantIsFreeOnceItsObjectsAreGone(t *testing.T) {
	for keep, until := range map[time.Duration]string{time.Hour: "", 0: "--keep-executions 0"} {
		b, _ := keeping(t, Config{Keep: keep})
		if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "b", Shared: ptr(true), PoolSize: ptr(1)}); err != nil {
			t.Fatal(err)
		}
		physics := runtime.TenantID("physics")
		conflict := func(named string) {
			t.Helper()
			err := b.FreeTenant(asServer(t), physics)
			refusal.Want(t, err, runtime.CodeConflict, "")
			if !strings.Contains(runtime.MessageOf(err), named) {
				t.Errorf("got %v, want %q in it", err, named)
			}
		}
		if err := b.FreeTenant(asServer(t), physics); err != nil {
			t.Error(err)
		}
		r, err := b.Runners.Claim(as(t, physics), request.Claim{EnvironmentID: "b", WaitFor: ptr(60)})
		if err != nil {
			t.Fatal(err)
		}
		conflict(string(r.ID))
		x, err := b.Executions.Start(as(t, physics), request.Start{RunnerID: r.ID, Command: []string{"sleep", "60"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.FreeTenant(asServer(t), "chemistry"); err != nil {
			t.Error("another's:", err)
		}
		if _, err := b.Runners.Release(asServer(t), r.ID); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the runner is removed", func() bool { _, there := b.runnerIndex.get(r.ID); return !there })
		b.await(t, x.ID)
		ended, err := b.Executions.Get(asServer(t), x.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if keep > 0 {
			until = ended.Timestamps.FinishedAt.Add(keep).UTC().Format(time.RFC3339)
		}
		conflict(until)
		if err := b.store.DeleteExecutions(asServer(t), []runtime.ExecutionID{x.ID}, time.Now()); err != nil {
			t.Fatal(err)
		}
		b.alerts.Add(runtime.Environment{Tenant: physics}, runtime.PoolAlert{EnvironmentID: "gone"})
		b.failures.Ended(time.Now(), runtime.Execution{Tenant: physics, End: runtime.End{Outcome: runtime.OutcomeFailed}})
		if err := b.FreeTenant(asServer(t), physics); err != nil {
			t.Error("once nothing is left:", err)
		}
		alerts := b.alertHistory(as(t, physics), t)
		if a := b.activity(as(t, physics), t); len(alerts) > 0 || a.FailuresPerMinute > 0 {
			t.Errorf("the new tenant sees the old one's alerts %+v, and %d failures", alerts, a.FailuresPerMinute)
		}
	}
}

// TestNewTenantDoesNotInheritIdempotencyKeys checks that a new tenant gets its own runner, ticket
// and execution with the same keys.
func TestNewTenantDoesNotInheritIdempotencyKeys(t *testing.T) {
	b, _ := keeping(t, Config{Keep: time.Hour})
	physics := runtime.TenantID("physics")
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "b", Shared: ptr(true), PoolSize: ptr(1)}); err != nil {
		t.Fatal(err)
	}
	claim := func(tenant runtime.TenantID, keys, key string) (runtime.Runner, error) {
		ctx := as(t, tenant)
		if keys == "" {
			ctx = asServer(t)
		}
		return b.Runners.Claim(ctx, request.Claim{EnvironmentID: "b", Key: key, WaitFor: ptr(60)})
	}
	later := func() ticket.Ticket {
		t.Helper()
		got, err := b.Tickets.Open(as(t, physics), request.Claim{EnvironmentID: "b", Key: "later", WaitFor: ptr(60)})
		if err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the ticket has its runner", func() bool {
			got, err = b.Tickets.Get(asServer(t), got.ID)
			return err != nil || got.Runner != ""
		})
		return got
	}
	release := func(id runtime.RunnerID) {
		t.Helper()
		if _, err := b.Runners.Release(asServer(t), id); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the runner is removed", func() bool { _, there := b.runnerIndex.get(id); return !there })
	}
	var collected []runtime.ExecutionID
	live := func() []runtime.RunnerID {
		t.Helper()
		r, err := claim(physics, "physics", "k")
		if err != nil {
			t.Fatal(err)
		}
		x, err := b.Executions.Start(as(t, physics), request.Start{RunnerID: r.ID, Key: "k", Command: []string{"true"}})
		if err != nil {
			t.Fatal(err)
		}
		b.await(t, x.ID)
		release(r.ID)
		ofTicket := later().Runner
		release(ofTicket)
		collected = append(collected, x.ID)
		return []runtime.RunnerID{r.ID, ofTicket}
	}
	other, err := claim("physics-2", "physics-2", "k")
	if err != nil {
		t.Fatal(err)
	}
	release(other.ID)
	before := live()
	if err := b.store.DeleteExecutions(asServer(t), collected, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	_, err = claim(physics, "physics", "k")
	refusal.Want(t, err, runtime.CodeRunnerGone, "", "its own spent key:")
	if err := b.FreeTenant(asServer(t), physics); err != nil {
		t.Fatal(err)
	}
	for i, id := range live() {
		if id == before[i] {
			t.Error("the new tenant got the old one's runner", id)
		}
	}
	_, err = claim("physics-2", "physics-2", "k")
	refusal.Want(t, err, runtime.CodeRunnerGone, "", "another tenant's spent key:")
}

// TestEnvironmentsAreBoundedByTenant checks that one tenant's environments leave room for another's.
func TestEnvironmentsAreBoundedByTenant(t *testing.T) {
	b := newBed(t)
	physics, chemistry := runtime.TenantID("physics"), runtime.TenantID("chemistry")
	put := func(id runtime.EnvironmentID, tenant *runtime.TenantID) error {
		_, _, err := b.Environments.Put(asServer(t), request.Environment{ID: id, Tenant: tenant, PoolSize: ptr(0)})
		return err
	}
	if err := put("physics", &physics); err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 - 1 {
		b.environmentRegistry.Restore([]runtime.Environment{{ID: runtime.EnvironmentID(fmt.Sprint("physics-", i)), Tenant: physics, Revision: 1}})
	}
	refusal.Want(t, put("one-more", &physics), runtime.CodeLimitExceeded, "")
	if err := errors.Join(put("physics", &physics), put("chemistry", &chemistry)); err != nil {
		t.Error(err)
	}
}
