package activity

import (
	"fmt"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func ended(tenant runtime.TenantID, outcome runtime.Outcome, code int) runtime.Execution {
	return runtime.Execution{Tenant: tenant, State: runtime.ExecutionFinished, End: runtime.End{Outcome: outcome, ExitCode: code}}
}

func TestFailuresAreOfTheLastMinute(t *testing.T) {
	var f Failures
	begin := time.Unix(1_000_000, 0)
	all := func(runtime.TenantID) bool { return true }
	mine := func(id runtime.TenantID) bool { return id == "mine" }
	wrong := ended("mine", runtime.OutcomeExited, 0)
	wrong.Comparison = &runtime.Comparison{Matches: new(false)}
	for _, x := range []runtime.Execution{
		ended("mine", runtime.OutcomeExited, 0), ended("mine", runtime.OutcomeCancelled, 0),
		ended("mine", runtime.OutcomeExited, 1), wrong, ended("theirs", runtime.OutcomeTimeLimit, 0), ended("theirs", runtime.OutcomeLost, 0),
	} {
		f.Ended(begin, x)
	}
	f.Ended(begin.Add(30*time.Second), ended("mine", runtime.OutcomeSignaled, 0))
	for _, c := range []struct{ after, all, mine int }{{30, 5, 3}, {59, 5, 3}, {60, 1, 1}, {89, 1, 1}, {90, 0, 0}} {
		now := begin.Add(time.Duration(c.after) * time.Second)
		if all, mine := f.Count(now, all), f.Count(now, mine); all != c.all || mine != c.mine {
			t.Errorf("after %d s: %d, of them %d of one tenant; want %d and %d", c.after, all, mine, c.all, c.mine)
		}
	}
	later := begin.Add(120 * time.Second) // the same slot of the table
	f.Ended(later, ended("mine", runtime.OutcomeFailed, 0))
	if n := f.Count(later, all); n != 1 {
		t.Errorf("two minutes later: got %d, want 1", n)
	}
}

func TestAlertsAreBoundedByTenant(t *testing.T) {
	var a Alerts
	begin := time.Unix(1_000_000, 0)
	alert := func(id runtime.EnvironmentID, at int) runtime.PoolAlert {
		return runtime.PoolAlert{EnvironmentID: id, State: runtime.PoolAlertRaised, Since: begin.Add(time.Duration(at) * time.Second)}
	}
	a.Add(runtime.Environment{Tenant: "quiet"}, alert("quiet", 1))
	a.Add(runtime.Environment{Tenant: "quiet", Shared: true}, alert("shared", 2))
	for i := range 3 * MostAlerts {
		a.Add(runtime.Environment{Tenant: "loud"}, alert(runtime.EnvironmentID(fmt.Sprint("loud-", i)), 10+i))
	}
	sees := func(tenant runtime.TenantID) func(runtime.Environment) bool {
		return func(env runtime.Environment) bool { return env.Tenant == tenant || env.Shared }
	}
	if quiet := a.Latest(sees("quiet")); len(quiet) != 2 || quiet[0].EnvironmentID != "shared" || quiet[1].EnvironmentID != "quiet" {
		t.Errorf("the quiet tenant's: %+v", quiet)
	}
	if loud := a.Latest(sees("loud")); len(loud) != MostAlerts || loud[0].EnvironmentID != "loud-299" || loud[MostAlerts-1].EnvironmentID != "loud-200" {
		t.Errorf("the loud tenant's: %d, from %+v", len(loud), loud[0])
	}
	a.Forget("quiet")
	if quiet := a.Latest(sees("quiet")); len(quiet) != 0 {
		t.Errorf("forgotten: %+v", quiet)
	}
}

// BenchmarkCounted measures the cost of counting a claim.
func BenchmarkCounted(b *testing.B) {
	c := NewCounts()
	c.OpenPool("a")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Claimed("a", time.Now(), nil)
		}
	})
}
