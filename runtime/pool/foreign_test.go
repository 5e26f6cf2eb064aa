package pool

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// TestAnotherTenantsRunnersAreReplaced checks that an environment's new tenant gets no runner of
// the earlier one: idle ones are replaced before a claim can get them, and claimed ones stay.
func TestAnotherTenantsRunnersAreReplaced(t *testing.T) {
	run(t, 2, func(t *testing.T, b *bed) {
		b.want(t, 2, 0)
		held := b.claim(t, Claim{})
		b.want(t, 2, 1)
		env := b.env
		env.Tenant, env.Shared = "t", false
		env.Revision++ // RunnerRevision alone is not enough: it starts again if the environment was deleted in between
		if err := b.SetEnvironment(t.Context(), env); err != nil {
			t.Fatal(err)
		}
		if got := b.Environment(); got.Tenant != "t" || got.Revision != 2 {
			t.Errorf("%+v", got)
		}
		r := b.claim(t, Claim{Claim: runtime.Claim{Tenant: "t"}, WaitFor: time.Minute})
		b.want(t, 2, 2)
		runners, err := b.fake.Runners(t.Context(), "")
		if err != nil || r.Environment.Tenant != "t" {
			t.Errorf("%+v, %v", r, err)
		}
		for _, r := range runners {
			if mine := r.Environment.Tenant == "t"; mine == (r.ID == held.ID) {
				t.Errorf("%s still exists: %+v", r.ID, r)
			}
		}
	})
}

// TestAnotherTenantsRunnersAreNotAdopted checks that a pool adopts no idle runner of another
// tenant, whatever its revision.
func TestAnotherTenantsRunnersAreNotAdopted(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		b.want(t, 1, 0)
		other := b.env
		other.Tenant, other.Revision, other.RunnerRevision = "other", 7, 7
		if err := b.fake.Start(t.Context(), "0", other, 0); err != nil {
			t.Fatal(err)
		}
		b.want(t, 1, 0)
		runners, err := b.fake.Runners(t.Context(), "")
		if err != nil || len(runners) != 1 || runners[0].ID == "0" {
			t.Errorf("%+v, %v", runners, err)
		}
	})
}

// TestAnotherTenantsRunnersAreNotHandedOut checks that a waiting claim doesn't get such a runner.
func TestAnotherTenantsRunnersAreNotHandedOut(t *testing.T) {
	env := runtime.Environment{ID: "a", Revision: 1, RunnerRevision: 1}
	o := loop{goal: goal{env: env, making: env}, runners: map[runtime.RunnerID]*entry{}}
	for id, tenant := range map[runtime.RunnerID]runtime.TenantID{"0": "other", "1": ""} {
		made := env
		made.Tenant = tenant
		o.runners[id] = &entry{Runner: runtime.Runner{ID: id, Environment: made, State: runtime.RunnerIdle}}
	}
	if e, only := o.oldestIdle(); e == nil || e.ID != "1" || !only {
		t.Errorf("%+v, %t", e, only)
	}
}
