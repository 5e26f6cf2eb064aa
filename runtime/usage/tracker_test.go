package usage

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

// TestWaitingForAQuotaUsesTheTenantsShare checks that claims waiting for their tenant's quota leave
// room for other tenants' claims, and stop waiting once the quota is raised.
func TestWaitingForAQuotaUsesTheTenantsShare(t *testing.T) {
	fake := clustertest.NewFake()
	limit := func(q *quota.Ledger, id runtime.TenantID, runners int) {
		q.SetTenant(runtime.Tenant{ID: id, Quotas: runtime.Quotas{Runners: &runners}})
	}
	quotas := quota.New()
	limit(quotas, "a", 0)
	limit(quotas, "b", 0)
	u := NewTracker(Config{Quotas: quotas, Runner: func(id runtime.RunnerID) (runtime.Runner, bool) {
		return runtime.Runner{ID: id, State: runtime.RunnerClaimed}, true
	}})
	u.shares.Limit = 4
	p := pool.New(runtime.Environment{ID: "a", Revision: 1, RunnerRevision: 1, Shared: true}, []runtime.Runner{}, pool.Options{
		Cluster: fake, Logger: zap.NewNop(), Observe: func(runtime.Runner) {}, Ending: func(context.Context, runtime.Runner) error { return nil },
	})
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- p.Run(running) }()
	go func() { ended <- fake.Watch(running, func(runtime.EnvironmentID) { p.Hint() }) }()
	t.Cleanup(func() {
		stop()
		<-ended
		<-ended
		if err := fake.Close(); err != nil {
			t.Error(err)
		}
	})
	answers := make(chan error)
	claim := func(ctx context.Context, tenant runtime.TenantID) error {
		_, err := u.Claim(ctx, p, pool.Claim{Claim: runtime.Claim{Tenant: tenant, InactivityTimeout: time.Hour}, WaitFor: 10 * time.Minute})
		return err
	}
	waits := func(ctx context.Context, tenant runtime.TenantID, n int64) {
		go func() { answers <- claim(ctx, tenant) }()
		wait.For(t, "the claim waits", func() bool { return quotas.Usage(tenant).Waiting.Used == n })
	}
	waits(t.Context(), "a", 1)
	waits(t.Context(), "a", 2)
	var refused *runtime.Error
	if err := claim(t.Context(), "a"); !errors.As(err, &refused) || refused.Exceeded == nil || *refused.Exceeded != (runtime.Exceeded{Quota: "waiting", Limit: 2, Used: 2}) {
		t.Errorf("%v, want QUOTA_EXCEEDED", err)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	waits(ctx, "b", 1)
	leave()
	if err := <-answers; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	limit(quotas, "a", 2)
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	waits(t.Context(), "b", 1) // what the others had is theirs again
	waits(t.Context(), "b", 2)
	quotas.Remove("b")
	if err := errors.Join(<-answers, <-answers); err != nil {
		t.Error(err)
	}
}
