package pool

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/clustertest"
)

// TestDraining checks that a draining pool hands out no runner, even an idle one, and reports the
// reason, even for a size of 0. A start that ends then isn't counted as failed.
func TestDraining(t *testing.T) {
	for name, size := range map[string]int{"a pool": 2, "one that keeps none": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testDraining(t, size) })
		})
	}
}

func testDraining(t *testing.T, size int) {
	var drains atomic.Bool
	fake := clustertest.NewFake()
	fake.StartDelay(10 * time.Millisecond)
	p := New(runtime.Environment{ID: "a", Revision: 1, RunnerRevision: 1, PoolSize: size}, nil, Options{
		Cluster: fake, Logger: zap.NewNop(), Observe: func(runtime.Runner) {}, Alert: AlertRule{Threshold: 0.5, Timeout: alertAfter},
		Ending: func(context.Context, runtime.Runner) error { return nil }, Draining: drains.Load,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = p.Run(ctx) })
	group.Go(func() { _ = fake.Watch(ctx, func(runtime.EnvironmentID) { p.Hint() }) })
	settle(time.Second)

	drains.Store(true)
	p.Hint()
	settle(time.Second)
	if s := p.Status(); s.Reason != reasonDraining || s.Idle != size {
		t.Errorf("%+v", s)
	}
	if _, err := p.Claim(ctx, Claim{}); runtime.CodeOf(err) != runtime.CodeNoRunnerAvailable || !strings.Contains(err.Error(), reasonDraining) {
		t.Errorf("a claim: %v", err)
	}
	if size > 0 {
		runners, _ := fake.Runners(ctx, "")
		fake.Kill(runners[0].ID, runtime.GoneDrained)
		settle(firstPause / 2) // the fake cluster starts another immediately
		if s := p.Status(); s.Idle != size || s.Starting != 0 {
			t.Errorf("after one was removed: %+v", s)
		}
	}
	claimed := make(chan error, 1)
	group.Go(func() {
		_, err := p.Claim(ctx, Claim{WaitFor: time.Hour})
		claimed <- err
	})
	settle(time.Minute)
	select {
	case err := <-claimed:
		t.Errorf("it didn't wait: %v", err)
		claimed <- err
	default:
	}
	drains.Store(false)
	p.Hint()
	if err := <-claimed; err != nil {
		t.Errorf("what waited: %v", err)
	}
	settle(time.Second)
	if s := p.Status(); s.Reason != "" || s.Idle != size || s.Claimed != 1 {
		t.Errorf("afterwards %+v", s)
	}
	cancel()
	group.Wait()
	if err := fake.Close(); err != nil {
		t.Error(err)
	}
}

// TestDrainingResolvesAlerts checks that a draining pool has no alert, and that each raised or
// resolved alert is reported once.
func TestDrainingResolvesAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var drains atomic.Bool
		var mu sync.Mutex
		var reported []string
		fake := clustertest.NewFake()
		fake.StartDelay(time.Hour * 24)
		p := New(runtime.Environment{ID: "a", Revision: 1, RunnerRevision: 1, PoolSize: 2}, nil, Options{
			Cluster: fake, Logger: zap.NewNop(), Observe: func(runtime.Runner) {}, Alert: AlertRule{Threshold: 0.5, Timeout: alertAfter},
			Ending: func(context.Context, runtime.Runner) error { return nil }, Draining: drains.Load,
			Alerted: func(env runtime.Environment, alert runtime.PoolAlert) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, string(env.ID)+" "+string(alert.State))
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = p.Run(ctx) })
		group.Go(func() { _ = fake.Watch(ctx, func(runtime.EnvironmentID) { p.Hint() }) })
		settle(5*alertAfter + time.Second)
		if alert, _ := p.WatchAlert(); !alert.Standing() {
			t.Errorf("a short pool: %+v", alert)
		}
		drains.Store(true)
		p.Hint()
		settle(5 * alertAfter)
		if alert, _ := p.WatchAlert(); alert.State != runtime.PoolAlertResolved || !strings.Contains(alert.Reason, "drained") {
			t.Errorf("got %+v, want RESOLVED by the drain", alert)
		}
		drains.Store(false)
		p.Hint()
		settle(5 * alertAfter)
		if alert, _ := p.WatchAlert(); !alert.Standing() {
			t.Errorf("afterwards: %+v", alert)
		}
		cancel()
		group.Wait()
		if want := []string{"a RAISED", "a RESOLVED", "a RAISED"}; !slices.Equal(reported, want) {
			t.Errorf("reported %q, want %q", reported, want)
		}
		if err := fake.Close(); err != nil {
			t.Error(err)
		}
	})
}
