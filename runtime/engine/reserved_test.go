package engine

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// wantQuota checks that err names a quota, and how much more is needed.
func wantQuota(t *testing.T, err error, name, words string) {
	t.Helper()
	if got := refused(t, err); got.Quota != name || !strings.Contains(runtime.MessageOf(err), words) {
		t.Errorf("got %v, want QUOTA_EXCEEDED of %s with %q", err, name, words)
	}
}

// TestReservationsCountAgainstQuotas puts environments and claims runners of a tenant with quotas of
// memory, CPU and pool runners, also after a restart and after a change of tenant.
func TestReservationsCountAgainstQuotas(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.config.Quotas = quota.New()
	four, memory, cpu := 4, int64(4096), int64(20_000)
	limited := runtime.Tenant{ID: "physics", Quotas: runtime.Quotas{PoolRunners: &four, MemoryMiB: &memory, CPUMHz: &cpu}}
	b.config.Quotas.SetTenant(limited)
	b.start(t)
	put := func(id runtime.EnvironmentID, tenant runtime.TenantID, size, mib, mhz int) error {
		_, _, err := b.Environments.Put(asServer(t), request.Environment{ID: id, Tenant: &tenant, PoolSize: &size, MemoryMiB: &mib, CPUMHz: &mhz})
		return err
	}
	use := func() [3]int64 {
		u := b.Callers.Usage(runtime.Tenant{ID: "physics"})
		return [3]int64{u.PoolRunners.Used, u.MemoryMiB.Used, u.CPUMHz.Used}
	}
	wantUse := func(when string, want [3]int64) {
		t.Helper()
		if got := use(); got != want {
			t.Errorf("%s: %v is reserved, want %v", when, got, want)
		}
	}
	wantQuota(t, put("huge", "physics", 1, 100_000, 1000), "memoryMiB", "100000 more")
	wantQuota(t, put("fast", "physics", 1, 64, 21_000), "cpuMHz", "21000 more")
	wantQuota(t, put("many", "physics", 5, 64, 100), "poolRunners", "5 more")
	wantUse("after refusals", [3]int64{})
	if err := errors.Join(put("a", "physics", 3, 1024, 1000), put("b", "physics", 0, 1024, 1000)); err != nil {
		t.Fatal(err)
	}
	wantUse("two environments", [3]int64{3, 3072, 3000})
	wantQuota(t, put("b", "physics", 1, 1025, 1000), "memoryMiB", "1025 more")
	r, err := b.Runners.Claim(as(t, "physics"), request.Claim{EnvironmentID: "b", WaitFor: ptr(patient)})
	if err != nil {
		t.Fatal(err)
	}
	wantUse("a held runner", [3]int64{3, 4096, 4000})
	_, err = b.Runners.Claim(as(t, "physics"), request.Claim{EnvironmentID: "b", WaitFor: ptr(patient)})
	wantQuota(t, err, "memoryMiB", "1024 more")
	b.stop()
	b.config.Quotas = quota.New()
	b.config.Quotas.SetTenant(limited)
	b.start(t)
	wantUse("after a restart", [3]int64{3, 4096, 4000})
	if _, err := b.Runners.Release(asServer(t), r.ID); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the runner is released", func() bool { return use() == [3]int64{3, 3072, 3000} })
	if err := put("a", "other", 3, 1024, 1000); err != nil {
		t.Fatal(err)
	}
	wantUse("given to another tenant", [3]int64{})
	// Concurrent puts never exceed the quota.
	var group sync.WaitGroup
	var put1 atomic.Int64
	for i := range 20 {
		group.Go(func() {
			if put(runtime.EnvironmentID("c"+string(rune('a'+i))), "physics", 1, 64, 100) == nil {
				put1.Add(1)
			}
		})
	}
	group.Wait()
	if put1.Load() != 4 {
		t.Errorf("%d environments with a runner each were put, want 4", put1.Load())
	}
	wantUse("four", [3]int64{4, 256, 400})
	// A lowered quota refuses only what needs more.
	none := 0
	b.config.Quotas.SetTenant(runtime.Tenant{ID: "physics", Quotas: runtime.Quotas{PoolRunners: &none}})
	for i := range 20 {
		id := runtime.EnvironmentID("c" + string(rune('a'+i)))
		if _, exists := b.environmentRegistry.Get(id); exists {
			wantQuota(t, put(id, "physics", 2, 64, 100), "poolRunners", "allows none")
			if err := put(id, "physics", 0, 64, 100); err != nil {
				t.Error(err)
			}
		}
	}
	wantUse("none", [3]int64{})
}

// TestKeptMemoryIsFreed checks that all that callers made the server keep is freed when it ends, and
// that a restarted server counts what is left.
func TestKeptMemoryIsFreed(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.config.Memory = quota.NewMemory(64 << 20)
	b.start(t)
	used := func() int64 { n, _ := b.config.Memory.Usage(); return n }
	tenant, size := runtime.TenantID(""), 1
	if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "kept", Tenant: &tenant, PoolSize: &size}); err != nil {
		t.Fatal(err)
	}
	environment := used()
	r := b.claim(t, "kept")
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"sleep", "1000"}, Variables: []runtime.Variable{{Name: "A", Value: strings.Repeat("x", 30_000)}}})
	if err != nil {
		t.Fatal(err)
	}
	s := b.sessions.Session(x.ID)
	<-s.Started()
	running := environment + bytesOfExecution(s.Execution())
	if got := used(); environment == 0 || got != running {
		t.Errorf("%d bytes are kept for a running execution, want %d", got, running)
	}
	wait.For(t, "the store has no variables any longer", func() bool {
		left, err := b.store.Unfinished(asServer(t))
		return err == nil && len(left) == 1 && len(left[0].Start) < 10_000
	})
	b.stop()
	b.config.Memory = quota.NewMemory(64 << 20)
	b.start(t)
	if got := used(); got != running {
		t.Errorf("a restarted server keeps %d bytes, want %d", got, running)
	}
	if _, err := b.Executions.Cancel(asServer(t), x.ID); err != nil {
		t.Fatal(err)
	}
	b.await(t, x.ID)
	wait.For(t, "only the environment is kept", func() bool { return used() == environment })
	if _, err := b.Environments.Delete(asServer(t), "kept", true); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "nothing is kept", func() bool { return used() == 0 })
}
