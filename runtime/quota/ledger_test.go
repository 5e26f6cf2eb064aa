package quota

import (
	"context"
	"errors"
	"math"
	gosched "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quotasOf returns quotas with the same limit everywhere.
func quotasOf(n int) runtime.Quotas {
	long := int64(n)
	return runtime.Quotas{Runners: &n, Waiting: &n, Executions: &n, ClaimsPerMinute: &n, CPUSecondsPerDay: &long, OutputBytesPerDay: &long, Subscriptions: &n, PoolRunners: &n, MemoryMiB: &long, CPUMHz: &long}
}

// refusal returns the details and the message of an exceeded quota.
func refusal(t *testing.T, err error) (runtime.Exceeded, string) {
	t.Helper()
	var e *runtime.Error
	if !errors.As(err, &e) || e.Code != runtime.CodeQuotaExceeded || e.Exceeded == nil {
		t.Fatalf("%v isn't QUOTA_EXCEEDED", err)
	}
	return *e.Exceeded, e.Message
}

func TestHeldQuotas(t *testing.T) {
	for r, name := range []string{"runners", "waiting", "executions", "subscriptions"} {
		r := Resource(r)
		l := New()
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(2)})
		for range 2 {
			if err := errors.Join(l.Of("a").Acquire(r, 1), l.Of("b").Acquire(r, 1), l.Of("b").Acquire(r, 1)); err != nil {
				t.Fatal(name, err)
			}
		}
		got, message := refusal(t, l.Of("a").Acquire(r, 1))
		if want := (runtime.Exceeded{Quota: name, Limit: 2, Used: 2}); got != want || !strings.Contains(message, "tenant a") {
			t.Errorf("got %+v, %q, want %+v", got, message, want)
		}
		l.Of("a").Release(r, 1)
		if err := l.Of("a").Acquire(r, 1); err != nil {
			t.Error(name, err)
		}
		l.Of("a").Adopt(r, 3)
		if got, _ := refusal(t, l.Of("a").Acquire(r, 1)); got.Used != 5 {
			t.Errorf("restored: %+v", got)
		}
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(0)})
		for range 9 {
			l.Of("a").Release(r, 1)
		}
		if got, message := refusal(t, l.Of("a").Acquire(r, 1)); got != (runtime.Exceeded{Quota: name}) || !strings.Contains(message, "allows none") {
			t.Errorf("%+v, %q", got, message)
		}
		l.Remove("a")
		if err := l.Of("a").Acquire(r, 1); err != nil {
			t.Error(name, err)
		}
	}
}

// waits makes callers of a tenant wait for a runner, one after the other, and sends the number of
// each that is served.
func waits(ctx context.Context, t *testing.T, l *Ledger, id runtime.TenantID, n int) <-chan int {
	t.Helper()
	served := make(chan int, n)
	for i := range n {
		go func() {
			if l.Of(id).Wait(ctx, Runners, time.Hour) == nil {
				served <- i
			}
		}()
		synctest.Wait()
	}
	return served
}

// got returns the callers served meanwhile.
func got(served <-chan int) (all []int) {
	synctest.Wait()
	for len(served) > 0 {
		all = append(all, <-served)
	}
	return all
}

// TestWaitIsInOrder checks that waiting callers are served in order of arrival, when their tenant
// releases something and when its quota is raised or removed.
func TestWaitIsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		for _, id := range []runtime.TenantID{"a", "b"} {
			l.SetTenant(runtime.Tenant{ID: id, Quotas: quotasOf(2)})
			l.Of(id).Adopt(Runners, 2)
		}
		a, b := waits(t.Context(), t, l, "a", 9), waits(t.Context(), t, l, "b", 1)
		if n := got(a); n != nil {
			t.Errorf("%d are served without room", n)
		}
		for want := range 2 {
			l.Of("a").Release(Runners, 1)
			if n := got(a); !slices.Equal(n, []int{want}) {
				t.Errorf("%d are served instead of %d", n, want)
			}
		}
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(1)})
		l.Of("a").Release(Runners, 1)
		if n := got(a); n != nil {
			t.Errorf("%d are served beyond a lowered quota", n)
		}
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(3)})
		if n := got(a); len(n) != 2 || n[0]+n[1] != 2+3 {
			t.Errorf("%d are served by a raised quota", n)
		}
		refusal(t, l.Of("a").Acquire(Runners, 1))
		l.Remove("a")
		if n := got(a); len(n) != 5 {
			t.Errorf("%d are served without a quota", n)
		}
		if n := got(b); n != nil {
			t.Errorf("%d of another tenant are served", n)
		}
		l.Of("b").Release(Runners, 1)
		got(b)
	})
}

// TestWaitEnds checks that a caller that gives up leaves its unit to the next one.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(1)})
		if err := l.Of("a").Wait(t.Context(), Runners, 0); err != nil {
			t.Errorf("with room: %v", err)
		}
		ctx, leave := context.WithCancelCause(t.Context())
		left := make(chan error, 1)
		go func() { left <- l.Of("a").Wait(ctx, Runners, time.Hour) }()
		synctest.Wait()
		began := time.Now()
		if e, _ := refusal(t, l.Of("a").Wait(t.Context(), Runners, time.Minute)); e.Used != 1 || time.Since(began) != time.Minute {
			t.Errorf("%+v after %v", e, time.Since(began))
		}
		next := waits(t.Context(), t, l, "a", 1)
		leave(errGone)
		l.Of("a").Release(Runners, 1) // it may be served just before it leaves
		if err := <-left; err == nil {
			l.Of("a").Release(Runners, 1)
		} else if !errors.Is(err, errGone) {
			t.Errorf("got %v, want %v", err, errGone)
		}
		if n := got(next); len(n) != 1 {
			t.Error("the next one isn't served")
		}
		if u := l.Usage("a").Runners.Used; u != 1 {
			t.Errorf("%d are taken, want 1", u)
		}
	})
}

var errGone = errors.New("the caller is gone")

// TestWaitersNeverExceedTheQuota lets callers arrive, wait, leave and release, many of them at the
// same instant, while the quota changes.
func TestWaitersNeverExceedTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const highest = 3
		l := New()
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(highest)})
		var group sync.WaitGroup
		var held, most, served, left, late atomic.Int64
		for i := range 50 {
			group.Go(func() {
				for range 30 {
					ctx, leave := context.WithTimeoutCause(t.Context(), time.Duration(i)*time.Millisecond, errGone)
					err := l.Of("a").Wait(ctx, Runners, time.Duration(50-i)*time.Millisecond)
					leave()
					switch {
					case err == nil:
						if n := held.Add(1); n > highest {
							most.Store(n)
						}
						served.Add(1)
						time.Sleep(time.Duration(i%3) * time.Millisecond)
						held.Add(-1)
						l.Of("a").Release(Runners, 1)
					case errors.Is(err, errGone):
						left.Add(1)
					case runtime.CodeOf(err) == runtime.CodeQuotaExceeded:
						late.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		group.Go(func() {
			for i := range 200 {
				l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(1 + i%highest)})
				time.Sleep(time.Millisecond)
			}
		})
		group.Wait()
		if u := l.Usage("a").Runners.Used; u != 0 || most.Load() > 0 || l.accounts["a"].waiting[Runners].Len() != 0 {
			t.Errorf("%d are taken at the end, %d were at once", u, most.Load())
		}
		if served.Load() == 0 || left.Load() == 0 || late.Load() == 0 {
			t.Errorf("%d were served, %d left, %d were too late", served.Load(), left.Load(), late.Load())
		}
	})
}

func TestClaimsPerMinuteAreOfAnyMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(3)})
		for range 3 { // at 0, 10 and 20 s
			if err := l.Of("a").Claim(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		got, message := refusal(t, l.Of("a").Claim())
		if want := (runtime.Exceeded{Quota: "claimsPerMinute", Limit: 3, Used: 3, RetryAfter: 30 * time.Second}); got != want || !strings.HasSuffix(message, "in 30s") {
			t.Errorf("got %+v, %q, want %+v", got, message, want)
		}
		time.Sleep(got.RetryAfter - 1)
		if got, message = refusal(t, l.Of("a").Claim()); got.RetryAfter != 1 || !strings.HasSuffix(message, "in 1ms") {
			t.Errorf("%+v, %q", got, message)
		}
		time.Sleep(time.Nanosecond)
		if err := l.Of("a").Claim(); err != nil { // at 60 s
			t.Error(err)
		}
		if got, _ := refusal(t, l.Of("a").Claim()); got.RetryAfter != 10*time.Second {
			t.Errorf("%+v", got)
		}
		// With a lower limit the wait is until 2 of 3 are old.
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(2)})
		if got, _ := refusal(t, l.Of("a").Claim()); got.RetryAfter != 20*time.Second || got.Used != 3 {
			t.Errorf("%+v", got)
		}
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(0)})
		if got, _ := refusal(t, l.Of("a").Claim()); got.RetryAfter != 0 {
			t.Errorf("%+v", got)
		}
		l.Remove("a")
		for range 2 * mostUnlimited {
			if err := l.Of("a").Claim(); err != nil {
				t.Fatal(err)
			}
		}
		if used, kept := l.Usage("a").ClaimsPerMinute.Used, len(l.accounts["a"].claims.times); used != mostUnlimited || kept > 2*mostUnlimited {
			t.Errorf("%d are used, %d kept", used, kept)
		}
		time.Sleep(minute)
		if used := l.Usage("a").ClaimsPerMinute.Used; used != 0 || l.accounts["a"].claims.times != nil {
			t.Errorf("a minute later %d are used", used)
		}
	})
}

func spent(tenant runtime.TenantID, cpu time.Duration, bytes int64) runtime.Execution {
	return runtime.Execution{Tenant: tenant, Usage: runtime.Usage{User: cpu / 2, System: cpu - cpu/2, OutputBytes: bytes}}
}

// spend counts what an execution used.
func (l *Ledger) spend(x runtime.Execution) {
	l.Of(x.Tenant).Spend(x.Usage.User+x.Usage.System, x.Usage.OutputBytes)
}

func TestDaysEndAtMidnight(t *testing.T) {
	for quota, x := range map[string]struct {
		almost, rest runtime.Execution
		limit        int64
	}{
		"cpuSecondsPerDay":  {spent("a", 10*time.Second-1, 0), spent("a", 1, 0), 10},
		"outputBytesPerDay": {spent("a", 0, 9), spent("a", 0, 1), 10},
	} {
		synctest.Test(t, func(t *testing.T) { // it begins at midnight, UTC
			l := New()
			l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(10)})
			time.Sleep(23 * time.Hour)
			l.spend(x.almost)
			if err := l.Of("a").Start(); err != nil {
				t.Fatal(err)
			}
			l.spend(x.rest)
			got, message := refusal(t, l.Of("a").Start())
			if want := (runtime.Exceeded{Quota: quota, Limit: 10, Used: 10, RetryAfter: time.Hour}); got != want || !strings.HasSuffix(message, "in 1h0m0s") {
				t.Errorf("got %+v, %q, want %+v", got, message, want)
			}
			if err := l.Of("b").Start(); err != nil {
				t.Error("another tenant:", err)
			}
			time.Sleep(time.Hour - 1)
			if got, _ := refusal(t, l.Of("a").Start()); got.RetryAfter != 1 {
				t.Errorf("%+v", got)
			}
			time.Sleep(time.Nanosecond)
			if err := l.Of("a").Start(); err != nil {
				t.Error(err)
			}
			if u := l.Usage("a"); u.CPUSecondsPerDay.Used != 0 || u.OutputBytesPerDay.Used != 0 {
				t.Errorf("%+v", u)
			}
		})
	}
}

func TestLargeLimitsDoNotOverflow(t *testing.T) {
	l := New()
	most := int64(math.MaxInt64)
	l.SetTenant(runtime.Tenant{ID: "a", Quotas: runtime.Quotas{CPUSecondsPerDay: &most, OutputBytesPerDay: &most}})
	l.spend(spent("a", time.Hour, 1<<40))
	l.spend(spent("a", -time.Hour, -1<<40))
	if err := l.Of("a").Start(); err != nil {
		t.Error(err)
	}
	l.SetTenant(runtime.Tenant{ID: "b", Quotas: quotasOf(0)})
	if got, message := refusal(t, l.Of("b").Start()); got != (runtime.Exceeded{Quota: "cpuSecondsPerDay"}) || !strings.Contains(message, "allows none") {
		t.Errorf("nothing is allowed: %+v, %q", got, message)
	}
	if u := l.Usage("a"); u.CPUSecondsPerDay.Used != 3600 || u.OutputBytesPerDay.Used != 1<<40 {
		t.Errorf("something was taken back: %+v", u)
	}
}

// days are stored days of usage.
type days []store.TenantDay

func (d days) DayUse(_ context.Context, day time.Time) ([]store.TenantDay, error) {
	if d == nil || !day.Equal(time.Now()) {
		return nil, errors.New("it can't be read")
	}
	return d, nil
}

func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		if err := l.Load(t.Context(), days{{Tenant: "a", CPU: 2500 * time.Millisecond, OutputBytes: 7}, {Tenant: "", OutputBytes: 1}}); err != nil {
			t.Fatal(err)
		}
		if err := l.Load(t.Context(), days(nil)); err == nil {
			t.Error("a failed read returned no error")
		}
		for range 5 {
			l.Of("a").Adopt(Runners, 1)
		}
		l.Of("a").Adopt(Waiting, 4)
		l.Of("a").Adopt(Executions, 3)
		l.Of("a").Adopt(Subscriptions, 2)
		if err := l.Of("a").Claim(); err != nil {
			t.Fatal(err)
		}
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(9)})
		limit := int64(9)
		of := func(used int64) Amount { return Amount{Used: used, Limit: &limit} }
		for _, want := range []Usage{
			{Tenant: "", OutputBytesPerDay: Amount{Used: 1}},
			{Tenant: "a", Runners: of(5), Waiting: of(4), Executions: of(3), Subscriptions: of(2), PoolRunners: of(0), MemoryMiB: of(0), CPUMHz: of(0), ClaimsPerMinute: of(1), CPUSecondsPerDay: of(2), OutputBytesPerDay: of(7)},
			{Tenant: "none"},
		} {
			if diff := cmp.Diff(want, l.Usage(want.Tenant)); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// TestConcurrentCallersNeverExceedTheQuota lets 100 callers acquire, hold and release, while the
// quota is set again and again.
func TestConcurrentCallersNeverExceedTheQuota(t *testing.T) {
	const limit = 1 // so that most of them arrive while the last one is released
	l := New()
	tenant := runtime.Tenant{ID: "a", Quotas: quotasOf(limit)}
	l.SetTenant(tenant)
	var group sync.WaitGroup
	var held [resources]atomic.Int64
	var took, refused, claimed atomic.Int64
	began := time.Now()
	for i := range 100 {
		group.Go(func() {
			r := Resource(i) % resources
			for range 300 {
				if l.Of("a").Claim() == nil {
					claimed.Add(1)
				}
				l.SetTenant(tenant)
				l.Usage(tenant.ID)
				if err := l.Of("a").Acquire(r, 1); err != nil {
					refused.Add(1)
					continue
				}
				if n := held[r].Add(1); n > limit {
					t.Errorf("%d %s are held", n, r)
				}
				took.Add(1)
				gosched.Gosched()
				held[r].Add(-1) // before Release: else another could take it meanwhile
				l.Of("a").Release(r, 1)
			}
		})
	}
	group.Wait()
	if n := claimed.Load(); n < limit || n > limit*(1+int64(time.Since(began)/minute)) {
		t.Errorf("%d claims", n)
	}
	for r := range resources {
		// Exactly the limit can be acquired afterwards.
		for range limit {
			if err := l.Of("a").Acquire(r, 1); err != nil {
				t.Error(err)
			}
		}
		refusal(t, l.Of("a").Acquire(r, 1))
	}
	t.Logf("%d were taken, %d refused", took.Load(), refused.Load())
}

// TestConcurrentCallersUseTheWholeQuota checks that exactly the limit of 100 concurrent callers succeed.
func TestConcurrentCallersUseTheWholeQuota(t *testing.T) {
	for range 50 {
		l := New()
		l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(7)})
		var group sync.WaitGroup
		var took atomic.Int64
		begin := make(chan struct{})
		for range 100 {
			group.Go(func() {
				<-begin
				if l.Of("a").Acquire(Runners, 1) == nil {
					took.Add(1)
				}
			})
		}
		close(begin)
		group.Wait()
		if n := took.Load(); n != 7 {
			t.Fatalf("%d were taken, want 7", n)
		}
	}
}

func BenchmarkAcquireAndClaim(b *testing.B) {
	l := New()
	l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(1 << 30)})
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			_ = l.Of("a").Claim()
			_ = l.Of("a").Acquire(Runners, 1)
			l.Of("a").Release(Runners, 1)
		}
	})
}
