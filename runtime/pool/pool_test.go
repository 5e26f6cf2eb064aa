package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/clustertest"
)

// alertAfter is how long a pool in a test may be low on runners.
const alertAfter = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed runs a pool over a fake cluster in fake time.
type bed struct {
	*Pool
	fake *clustertest.Fake
	env  runtime.Environment

	plans atomic.Int64 // how often the pool settled, at least

	mu    sync.Mutex
	ended map[runtime.RunnerID]runtime.Runner // by Ending
}

func run(t *testing.T, size int, test func(t *testing.T, b *bed)) {
	t.Helper()
	runOver(t, size, func(*clustertest.Fake) {}, test)
}

// runOver is like run over a cluster that prepare has changed, because a pool may start runners
// before test begins.
func runOver(t *testing.T, size int, prepare func(*clustertest.Fake), test func(t *testing.T, b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{fake: clustertest.NewFake(), ended: map[runtime.RunnerID]runtime.Runner{}}
		b.fake.StartDelay(10 * time.Millisecond)
		prepare(b.fake)
		b.env = runtime.Environment{ID: "a", Shared: true, Revision: 1, RunnerRevision: 1, PoolSize: size}
		b.Pool = b.open()
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = b.Run(ctx) })
		group.Go(func() { _ = b.fake.Watch(ctx, func(runtime.EnvironmentID) { b.Hint() }) })
		test(t, b)
		cancel()
		group.Wait()
		if err := b.fake.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (b *bed) open() *Pool {
	return b.over(b.fake)
}

// over returns a pool over a cluster.
func (b *bed) over(cluster Cluster) *Pool {
	return New(b.env, nil, Options{
		Cluster: cluster, Logger: zap.NewNop(), Observe: func(runtime.Runner) {}, Alert: AlertRule{Threshold: 0.5, Timeout: alertAfter},
		Draining: func() bool { b.plans.Add(1); return false }, // each publish calls it
		Ending: func(_ context.Context, r runtime.Runner) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.ended[r.ID] = r
			return nil
		},
	})
}

// settle lets fake time pass until everything that began has ended.
func settle(d time.Duration) {
	time.Sleep(d) // fake time: nothing waits
	synctest.Wait()
}

func (b *bed) claim(t *testing.T, c Claim) runtime.Runner {
	t.Helper()
	r, err := b.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bed) want(t *testing.T, idle, claimed int) {
	t.Helper()
	settle(time.Second)
	if s := b.Status(); s.Idle != idle || s.Claimed != claimed || s.Starting != 0 || s.Stopping != 0 {
		t.Errorf("%+v, want %d idle and %d claimed", s, idle, claimed)
	}
}

func TestPoolFillsAndRefills(t *testing.T) {
	run(t, 2, func(t *testing.T, b *bed) {
		b.want(t, 2, 0)
		r := b.claim(t, Claim{})
		if r.State != runtime.RunnerClaimed || r.Claim.Epoch != 1 {
			t.Errorf("claimed %+v", r)
		}
		b.want(t, 2, 1)
		if released, err := b.Release(t.Context(), r.ID); err != nil || !released {
			t.Errorf("release: %v, %v", released, err)
		}
		b.want(t, 2, 0)
		if released, err := b.Release(t.Context(), r.ID); err != nil || released {
			t.Errorf("second release: %v, %v", released, err)
		}
		if _, err := b.Use(t.Context(), r.ID); runtime.CodeOf(err) != runtime.CodeRunnerGone {
			t.Errorf("use after release: got %v, want RUNNER_GONE", err)
		}
		runners, _ := b.fake.Runners(t.Context(), "")
		if _, err := b.Use(t.Context(), runners[0].ID); runtime.CodeOf(err) != runtime.CodeConflict {
			t.Errorf("use of an idle runner: got %v, want CONFLICT", err)
		}
		if _, err := b.Release(t.Context(), runners[0].ID); runtime.CodeOf(err) != runtime.CodeConflict {
			t.Errorf("release of an idle runner: got %v, want CONFLICT", err)
		}
	})
}

func TestPoolGrowsShrinksAndReplaces(t *testing.T) {
	run(t, 2, func(t *testing.T, b *bed) {
		b.want(t, 2, 0)
		held := b.claim(t, Claim{})
		env := b.env
		for _, size := range []int{5, 1} {
			env.Revision, env.PoolSize = env.Revision+1, size
			starts := b.fake.Starts()
			if err := b.SetEnvironment(t.Context(), env); err != nil {
				t.Fatal(err)
			}
			b.want(t, size, 1)
			if n := b.fake.Starts() - starts; size == 1 && n != 0 {
				t.Errorf("shrinking started %d runners", n)
			}
		}
		env.Revision++
		env.RunnerRevision = env.Revision
		if err := b.SetEnvironment(t.Context(), env); err != nil {
			t.Fatal(err)
		}
		b.want(t, 1, 1)
		if r, err := b.Use(t.Context(), held.ID); err != nil || r.Environment.Revision != 1 {
			t.Errorf("the claimed runner: %+v, %v", r, err)
		}
		if r := b.claim(t, Claim{}); r.Environment.Revision != env.Revision {
			t.Errorf("claimed revision %d, want %d", r.Environment.Revision, env.Revision)
		}
	})
}

func TestPoolServesClaimsInOrder(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		settle(time.Second)
		if _, err := b.Claim(t.Context(), Claim{}); runtime.CodeOf(err) != runtime.CodeNoRunnerAvailable {
			t.Errorf("claim on an empty pool: got %v, want NO_RUNNER_AVAILABLE", err)
		}
		b.fake.StartDelay(0)
		var order []int
		var group sync.WaitGroup
		var mu sync.Mutex
		blocked := make(chan struct{})
		b.fake.OnMark(func(runtime.RunnerID, runtime.Claim) error { <-blocked; return nil })
		for i := range 5 {
			group.Go(func() {
				r, err := b.Claim(t.Context(), Claim{WaitFor: time.Minute, Claim: runtime.Claim{Key: fmt.Sprint(i)}})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				_ = r
			})
			synctest.Wait()
		}
		close(blocked)
		group.Wait()
		runners, _ := b.fake.Runners(t.Context(), "a")
		// Runners were started, and so are numbered, in the order of the claims.
		for _, r := range runners {
			for _, other := range runners {
				if r.ID < other.ID && r.Claim.Key > other.Claim.Key {
					t.Errorf("claim %s has a later runner than claim %s", other.Claim.Key, r.Claim.Key)
				}
			}
		}
		if len(order) != 5 || len(runners) != 5 {
			t.Errorf("%d claims, %d runners", len(order), len(runners))
		}
	})
}

func TestClaimWaitsAndGivesUp(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		b.fake.OnStart(func(runtime.RunnerID) error { return errors.New("no room") })
		began := time.Now()
		_, err := b.Claim(t.Context(), Claim{WaitFor: 3 * time.Second})
		if runtime.CodeOf(err) != runtime.CodeNoRunnerAvailable || time.Since(began) != 3*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		synctest.Wait() // the answer is sent before the status is published
		if s := b.Status(); s.Reason != "no room" || s.Waiting != 0 {
			t.Errorf("status %+v", s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { _, err := b.Claim(ctx, Claim{WaitFor: time.Hour}); left <- err }()
		settle(time.Second)
		if s := b.Status(); s.Waiting != 1 {
			t.Errorf("waiting: %+v", s)
		}
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		settle(time.Second)
		if s := b.Status(); s.Waiting != 0 {
			t.Errorf("still waiting: %+v", s)
		}
	})
}

func TestFailingStartsBackOff(t *testing.T) {
	broken := atomic.Bool{}
	broken.Store(true)
	breaks := func(fake *clustertest.Fake) {
		fake.OnStart(func(runtime.RunnerID) error {
			if broken.Load() {
				return errors.New("broken image")
			}
			return nil
		})
	}
	runOver(t, 5, breaks, func(t *testing.T, b *bed) {
		settle(time.Hour)
		// 5 immediately, then 1 after 1, 2, 4 … s and then every minute.
		if n := b.fake.Starts(); n < 50 || n > 80 {
			t.Errorf("%d starts in an hour", n)
		}
		if s := b.Status(); s.Reason != "broken image" || s.Idle != 0 {
			t.Errorf("status %+v", s)
		}
		broken.Store(false)
		settle(2 * time.Minute)
		b.want(t, 5, 0)
		if s := b.Status(); s.Reason != "" {
			t.Errorf("reason stays: got %q, want \"\"", s.Reason)
		}
	})
}

func TestClaimsExpireUnlessUsed(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		r := b.claim(t, Claim{Claim: runtime.Claim{InactivityTimeout: time.Minute}})
		settle(50 * time.Second)
		if _, err := b.Renew(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
		settle(50 * time.Second)
		if _, err := b.Use(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
		settle(time.Hour) // in use
		b.want(t, 1, 1)
		b.Done(t.Context(), r.ID)
		settle(59 * time.Second)
		b.want(t, 1, 0) // 60 s after the last use
		if b.ended[r.ID].GoneReason != runtime.GoneInactivity {
			t.Errorf("ended as %+v", b.ended[r.ID])
		}
		never := b.claim(t, Claim{})
		settle(24 * time.Hour)
		if _, err := b.Use(t.Context(), never.ID); err != nil {
			t.Errorf("a claim without a time-out: %v", err)
		}
	})
}

func TestRenewalsAreStoredRarely(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		marks := atomic.Int64{}
		b.fake.OnMark(func(runtime.RunnerID, runtime.Claim) error { marks.Add(1); return nil })
		r := b.claim(t, Claim{Claim: runtime.Claim{InactivityTimeout: 100 * time.Second}})
		for range 1000 { // 100 s of uses
			settle(100 * time.Millisecond)
			if _, err := b.Renew(t.Context(), r.ID); err != nil {
				t.Fatal(err)
			}
		}
		if n := marks.Load(); n < 9 || n > 11 {
			t.Errorf("%d marks for a claim and 100 s of renewals, want 10", n)
		}
	})
}

func TestFailedMarkRemovesTheRunner(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		var burnt runtime.RunnerID
		b.fake.OnMark(func(id runtime.RunnerID, _ runtime.Claim) error {
			burnt = id
			return runtime.Errorf(runtime.CodeClusterUnavailable, "time-out")
		})
		if _, err := b.Claim(t.Context(), Claim{}); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
			t.Errorf("claim: got %v, want CLUSTER_UNAVAILABLE", err)
		}
		b.fake.OnMark(func(runtime.RunnerID, runtime.Claim) error { return nil })
		b.want(t, 1, 0)
		if r := b.claim(t, Claim{}); r.ID == burnt {
			t.Error("the burnt runner was handed out")
		}
	})
}

// A cluster ends an idle runner, for example while the machine is drained, and the pool doesn't know yet.
func TestClaimOfAnEndedIdleRunnerGetsAnother(t *testing.T) {
	for name, test := range map[string]struct {
		size int
		wait time.Duration
		code runtime.Code
	}{
		"another is idle: it is claimed":             {size: 2},
		"none is idle, no wait: no runner":           {size: 1, code: runtime.CodeNoRunnerAvailable},
		"none is idle: the claim waits for the next": {size: 1, wait: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, test.size, func(t *testing.T, b *bed) {
				settle(time.Second)
				var ended runtime.RunnerID
				b.fake.OnMark(func(id runtime.RunnerID, _ runtime.Claim) error {
					if ended == "" {
						ended = id
					}
					if id == ended {
						return runtime.Gone(id)
					}
					return nil
				})
				r, err := b.Claim(t.Context(), Claim{WaitFor: test.wait})
				if (err != nil) != (test.code != "") || err != nil && runtime.CodeOf(err) != test.code || r.ID == ended {
					t.Errorf("claim: got %q, %v; want code %q and not %s", r.ID, err, test.code, ended)
				}
				b.want(t, test.size, min(1, len(r.ID)))
			})
		})
	}
}

// The environment stops being shared while the claim of another tenant is being stored.
func TestClaimOfAnEndedIdleRunnerIsRefusedByTheNewEnvironment(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		own := b.env
		own.Shared, own.Tenant, own.Revision = false, "owner", 2
		b.fake.OnMark(func(id runtime.RunnerID, _ runtime.Claim) error {
			if err := b.SetEnvironment(t.Context(), own); err != nil {
				t.Error(err)
			}
			return runtime.Gone(id)
		})
		r, err := b.Claim(t.Context(), Claim{Claim: runtime.Claim{Tenant: "other"}, WaitFor: time.Minute})
		if runtime.CodeOf(err) != runtime.CodeEnvironmentNotFound {
			t.Errorf("claim: got %q, %v; want %s", r.ID, err, runtime.CodeEnvironmentNotFound)
		}
	})
}

func TestDeadRunnersAreReplaced(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		r := b.claim(t, Claim{})
		settle(time.Second)
		b.fake.Kill(r.ID, runtime.GoneAgentDied)
		b.want(t, 1, 0)
		if b.ended[r.ID].GoneReason != runtime.GoneAgentDied || b.ended[r.ID].State != runtime.RunnerGone {
			t.Errorf("ended as %+v", b.ended[r.ID])
		}
		runners, _ := b.fake.Runners(t.Context(), "")
		b.fake.Kill(runners[0].ID, runtime.GoneEvicted)
		settle(2 * time.Second)
		b.want(t, 1, 0)
	})
}

func TestAbandonedClaims(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		marking := make(chan struct{})
		release := make(chan struct{})
		b.fake.OnMark(func(runtime.RunnerID, runtime.Claim) error { marking <- struct{}{}; <-release; return nil })
		for _, key := range []string{"", "k"} {
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan error)
			go func() {
				_, err := b.Claim(ctx, Claim{WaitFor: time.Minute, Claim: runtime.Claim{Key: key}})
				left <- err
			}()
			<-marking
			cancel()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %v", err, context.Canceled)
			}
			synctest.Wait()
			release <- struct{}{}
			settle(time.Second)
		}
		b.want(t, 1, 1) // the one with a key waits for the retry
	})
}

func TestDeletedPoolEnds(t *testing.T) {
	run(t, 2, func(t *testing.T, b *bed) {
		settle(time.Second)
		r := b.claim(t, Claim{})
		if err := b.Delete(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		b.want(t, 0, 1)
		if _, err := b.Claim(t.Context(), Claim{}); runtime.CodeOf(err) != runtime.CodeEnvironmentNotFound {
			t.Errorf("claim in a deleted pool: got %v, want ENVIRONMENT_NOT_FOUND", err)
		}
		if _, err := b.Release(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if s := b.Status(); !s.Deleted {
			t.Errorf("last status %+v", s)
		}
		if _, err := b.Claim(t.Context(), Claim{}); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
			t.Errorf("claim in an ended pool: got %v, want CLUSTER_UNAVAILABLE", err)
		}
	})
}

func TestPoolAdoptsExistingRunners(t *testing.T) {
	run(t, 2, func(t *testing.T, b *bed) {
		settle(time.Second)
		r := b.claim(t, Claim{Claim: runtime.Claim{InactivityTimeout: 100 * time.Second}})
		settle(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		second := b.open() // as after a restart; the first one rests meanwhile
		ended := make(chan error)
		go func() { ended <- second.Run(ctx) }()
		settle(time.Second)
		if s := second.Status(); s.Idle != 2 || s.Claimed != 1 {
			t.Errorf("adopted %+v", s)
		}
		adopted, err := second.Use(ctx, r.ID)
		if err != nil || !adopted.Claim.ClaimedAt.Equal(r.Claim.ClaimedAt) {
			t.Errorf("%+v, %v", adopted, err)
		}
		cancel()
		<-ended
	})
}

// TestNoRunnerIsClaimedTwice claims and releases from a thousand goroutines.
func TestNoRunnerIsClaimedTwice(t *testing.T) {
	run(t, 20, func(t *testing.T, b *bed) {
		b.fake.StartDelay(time.Millisecond)
		seen := sync.Map{}
		var group sync.WaitGroup
		for range 1000 {
			group.Go(func() {
				r, err := b.Claim(t.Context(), Claim{WaitFor: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				if _, twice := seen.LoadOrStore(r.ID, true); twice {
					t.Errorf("runner %s was handed out twice", r.ID)
				}
				if _, err := b.Release(t.Context(), r.ID); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		b.want(t, 20, 0)
	})
}

func TestRenewIsDurableWhenItReturns(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		r := b.claim(t, Claim{Claim: runtime.Claim{InactivityTimeout: time.Minute}})
		settle(30 * time.Second)
		b.fake.OnMark(func(runtime.RunnerID, runtime.Claim) error { return errors.New("no") })
		if _, err := b.Renew(t.Context(), r.ID); err == nil {
			t.Error("a renewal that wasn't stored was answered")
		}
		b.fake.OnMark(func(runtime.RunnerID, runtime.Claim) error { time.Sleep(time.Second); return nil })
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				renewed, err := b.Renew(t.Context(), r.ID)
				runners, _ := b.fake.Runners(t.Context(), "")
				for _, stored := range runners {
					if stored.ID == r.ID && (err != nil || renewed.Claim.ExpiresAt.Sub(stored.Claim.ExpiresAt) > 6*time.Second) {
						t.Errorf("answered %s (%v), stored %s", renewed.Claim.ExpiresAt, err, stored.Claim.ExpiresAt)
					}
				}
			})
			settle(300 * time.Millisecond)
		}
		group.Wait()
	})
}

func TestCancelledCallsLeaveNothingBehind(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		r := b.claim(t, Claim{Claim: runtime.Claim{InactivityTimeout: time.Minute}})
		var group sync.WaitGroup
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			group.Go(func() {
				if _, err := b.Use(ctx, r.ID); err == nil {
					b.Done(ctx, r.ID)
				}
			})
			group.Go(cancel)
			// Answered or not, a cancelled claim's runner isn't held.
			group.Go(func() {
				if _, err := b.Claim(ctx, Claim{}); err == nil {
					cancel()
				}
			})
		}
		group.Wait()
		settle(2 * time.Minute)
		if _, err := b.Use(t.Context(), r.ID); runtime.CodeOf(err) != runtime.CodeRunnerGone {
			t.Errorf("the claim didn't expire: got %v, want RUNNER_GONE", err)
		}
	})
}
