package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// refused returns the share or quota that an error names.
func refused(t *testing.T, err error) runtime.Exceeded {
	t.Helper()
	var e *runtime.Error
	if !errors.As(err, &e) || e.Code != runtime.CodeQuotaExceeded || e.Exceeded == nil {
		t.Errorf("%v isn't QUOTA_EXCEEDED", err)
		return runtime.Exceeded{}
	}
	return *e.Exceeded
}

// TestClaimWaitingForQuotaAndRunnerCountsOnce checks that a claim that waits first for its tenant's
// quota of runners and then for a runner keeps its unit of the quota of waiting claims.
func TestClaimWaitingForQuotaAndRunnerCountsOnce(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.config.Quotas = quota.New()
	b.config.Quotas.SetTenant(runtime.Tenant{ID: "a", Quotas: runtime.Quotas{Runners: ptr(0), Waiting: ptr(1)}})
	b.start(t)
	starts := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "a", Shared: ptr(true), PoolSize: ptr(0)}); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error)
	claim := func() error {
		_, err := b.Runners.Claim(as(t, "a"), request.Claim{EnvironmentID: "a", WaitFor: ptr(600)})
		return err
	}
	go func() { answer <- claim() }()
	wait.For(t, "the claim waits", func() bool { return b.Callers.Usage(runtime.Tenant{ID: "a"}).Waiting.Used == 1 })
	before, _ := b.usage.WaitingClaims(asServer(t), request.Waiting{}, 1, "")
	b.config.Quotas.SetTenant(runtime.Tenant{ID: "a", Quotas: runtime.Quotas{Runners: ptr(2), Waiting: ptr(1)}})
	wait.For(t, "it waits for a runner", func() bool { s, _ := b.Environments.PoolStatus(runtime.Environment{ID: "a"}); return s.Waiting == 1 })
	if got := refused(t, claim()); got.Quota != "waiting" {
		t.Errorf("%+v", got)
	}
	if after, _ := b.usage.WaitingClaims(asServer(t), request.Waiting{}, 1, ""); len(after) != 1 || after[0].ID != before[0].ID {
		t.Errorf("%+v, then %+v", before, after)
	}
	close(starts)
	if err := <-answer; err != nil || b.Callers.Usage(runtime.Tenant{ID: "a"}).Waiting.Used != 0 {
		t.Errorf("%v, %+v", err, b.Callers.Usage(runtime.Tenant{ID: "a"}))
	}
}

// TestWaitingClaimsAreNotCountedAsRunners checks that a refusal reports held runners and pending
// claims separately.
func TestWaitingClaimsAreNotCountedAsRunners(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.config.Quotas = quota.New()
	b.config.Quotas.SetTenant(runtime.Tenant{ID: "a", Quotas: runtime.Quotas{Runners: ptr(2)}})
	b.start(t)
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "a", Shared: ptr(true), PoolSize: ptr(0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Runners.Claim(as(t, "a"), request.Claim{EnvironmentID: "a", WaitFor: ptr(60)}); err != nil {
		t.Fatal(err)
	}
	starts := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	answer := make(chan error)
	go func() {
		_, err := b.Runners.Claim(as(t, "a"), request.Claim{EnvironmentID: "a", WaitFor: ptr(600)})
		answer <- err
	}()
	wait.For(t, "it waits for a runner", func() bool { s, _ := b.Environments.PoolStatus(runtime.Environment{ID: "a"}); return s.Waiting == 1 })
	_, err := b.Runners.Claim(as(t, "a"), request.Claim{EnvironmentID: "a"})
	if got, want := refused(t, err), (runtime.Exceeded{Quota: "runners", Limit: 2, Used: 1, Pending: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if used := b.Callers.Usage(runtime.Tenant{ID: "a"}).Runners.Used; used != 1 {
		t.Errorf("%d runners are used, want 1", used)
	}
	close(starts)
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	_, err = b.Runners.Claim(as(t, "a"), request.Claim{EnvironmentID: "a"})
	if got, want := refused(t, err), (runtime.Exceeded{Quota: "runners", Limit: 2, Used: 2}); got != want || b.Callers.Usage(runtime.Tenant{ID: "a"}).Runners.Used != 2 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestRunningBatchesWaitForQuotas checks that a running batch with fresh runners continues whatever
// its tenant's quotas are.
func TestRunningBatchesWaitForQuotas(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.config.Quotas = quota.New()
	b.start(t)
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "a", Shared: ptr(true), PoolSize: ptr(1)}); err != nil {
		t.Fatal(err)
	}
	tight := runtime.Tenant{ID: "a", Quotas: runtime.Quotas{Runners: ptr(0), Waiting: ptr(0)}}
	first := make(chan struct{})
	b.fake.OnMark(func(runtime.RunnerID, runtime.Claim) error {
		select {
		case <-first:
		default:
			b.config.Quotas.SetTenant(tight)
			close(first)
		}
		return nil
	})
	batch, _, err := b.Batches.Run(as(t, "a"), request.Run{EnvironmentID: "a", Command: []string{"true"}, WaitFor: ptr(patient)},
		request.Batch{Cases: []request.Case{{}, {}}, FreshRunners: true})
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the second case waits", func() bool {
		all, _ := b.usage.WaitingClaims(asServer(t), request.Waiting{}, 1, "")
		return len(all) == 1
	})
	if used := b.Callers.Usage(runtime.Tenant{ID: "a"}).Waiting.Used; used != 0 {
		t.Errorf("%d count, want 0", used)
	}
	b.config.Quotas.Remove("a")
	if got := b.awaitBatch(t, batch.ID); got.Outcome != runtime.BatchCompleted {
		t.Errorf("%+v", got)
	}
}

// TestRunningBatchesAreLimitedPerTenant fills the server with one tenant's batches, and checks,
// also after a restart, that others' still start.
func TestRunningBatchesAreLimitedPerTenant(t *testing.T) {
	b := newBed(t)
	b.batchTable.shares.Limit = 4
	shared := true
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "a", Shared: &shared, PoolSize: ptr(0)}); err != nil {
		t.Fatal(err)
	}
	run := func(tenant runtime.TenantID) (runtime.Batch, error) {
		in := request.Run{EnvironmentID: "a", Command: []string{"sleep", "3600"}, WaitFor: ptr(patient)}
		batch, _, err := b.Batches.Run(as(t, tenant), in, request.Batch{Cases: []request.Case{{}}})
		return batch, err
	}
	var all []runtime.Batch
	runs := func(tenant runtime.TenantID) {
		t.Helper()
		batch, err := run(tenant)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, batch)
	}
	full := func() {
		t.Helper()
		_, err := run("t")
		if got := refused(t, err); got.Quota != "batches" || got.Used != 2 {
			t.Errorf("%+v", got)
		}
	}
	runs("t")
	runs("t")
	full()
	for i := range 5 { // more than there is room for: each has its first
		runs(runtime.TenantID(fmt.Sprint(i)))
	}
	b.stop()
	b.start(t)
	b.batchTable.shares.Limit = 4
	full()
	for _, batch := range all {
		if _, err := b.Batches.Cancel(asServer(t), batch.ID); err != nil {
			t.Error(err)
		}
		b.awaitBatch(t, batch.ID)
	}
	wait.For(t, "all have ended", func() bool { return b.batchTable.len() == 0 })
	runs("t")
	runs("t")
	full()
}

// TestUnwantedRunnerDoesNotSpendALaterClaimsKey removes the runner of an abandoned claim while a
// later claim uses the same key.
func TestUnwantedRunnerDoesNotSpendALaterClaimsKey(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	in := request.Claim{EnvironmentID: "a", Key: "k", WaitFor: ptr(patient)}
	r, err := b.Runners.Claim(asServer(t), in)
	if err != nil {
		t.Fatal(err)
	}
	old := r
	old.ID = runtime.NewRunnerID()
	if err := b.ending(asServer(t), old); err != nil {
		t.Error(err)
	}
	if again, err := b.Runners.Claim(asServer(t), in); err != nil || again.ID != r.ID {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := b.Runners.Release(asServer(t), r.ID); err != nil {
		t.Error(err)
	}
	_, err = b.Runners.Claim(asServer(t), in)
	refusal.Want(t, err, runtime.CodeRunnerGone, "")
}
