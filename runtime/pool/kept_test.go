package pool

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// crowded runs a pool of this size whose idle runners are used up, while three more claims of the
// tenant "many" wait: one of one caller, two of another. The function ready makes one more runner
// idle. The answered claims of "many" are counted in served.
func crowded(t *testing.T, env runtime.Environment, waitsFor string, test func(t *testing.T, p *Pool, ready func(), served *atomic.Int32)) {
	t.Helper()
	run(t, 0, func(t *testing.T, b *bed) {
		b.env = env
		b.env.ID, b.env.Revision, b.env.RunnerRevision = "crowded", 1, 1
		cluster := &tight{Cluster: b.fake}
		none := ""
		cluster.waitsFor.Store(&none)
		p := b.over(cluster)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = p.Run(ctx) })
		defer group.Wait()
		defer cancel()
		hint := func() { p.Hint(); settle(time.Millisecond) }
		settle(time.Second)
		hint()
		gate := b.hold()
		defer close(gate)
		var served atomic.Int32
		for i := range env.PoolSize + 3 {
			caller := fmt.Sprint(i > env.PoolSize)
			group.Go(func() {
				if _, err := p.Claim(ctx, Claim{Claim: runtime.Claim{Tenant: "many"}, Caller: caller, WaitFor: time.Hour}); err == nil {
					served.Add(1)
				}
			})
			settle(time.Millisecond)
		}
		cluster.waitsFor.Store(&waitsFor)
		hint()
		if n := int(served.Load()); n != env.PoolSize || p.Status().Waiting != 3 {
			t.Fatalf("%d were served, %+v", n, p.Status())
		}
		test(t, p, func() { gate <- struct{}{}; settle(time.Millisecond); hint() }, &served)
	})
}

// TestIdleRunnerIsReservedForTheNextTenant checks that the next tenant gets a runner immediately,
// however many claims of another tenant wait.
func TestIdleRunnerIsReservedForTheNextTenant(t *testing.T) {
	crowded(t, runtime.Environment{Shared: true, PoolSize: 2}, "", func(t *testing.T, p *Pool, ready func(), served *atomic.Int32) {
		want := func(when string, many int32, idle int) {
			t.Helper()
			if n := served.Load(); n != many || p.Status().Idle != idle {
				t.Errorf("%s: many have %d, %+v, want %d and %d idle", when, n, p.Status(), many, idle)
			}
		}
		claim := func(tenant runtime.TenantID) error {
			_, err := p.Claim(t.Context(), Claim{Claim: runtime.Claim{Tenant: tenant}})
			return err
		}
		ready()
		want("with one", 2, 1)
		if err := claim("many"); runtime.CodeOf(err) != runtime.CodeNoRunnerAvailable {
			t.Errorf("one more of many: got %v, want NO_RUNNER_AVAILABLE", err)
		}
		if err := claim("few"); err != nil {
			t.Errorf("one of few: %v", err)
		}
		want("when few have it", 2, 0)
		ready()
		want("with the next one", 2, 1)
		ready()
		want("with two", 3, 1)
		settle(keptFor)
		want("when it was kept for long", 4, 0)
	})
}

// TestIdleRunnerIsNotReservedWithoutNeed checks that a runner is handed out if no other one will
// follow soon.
func TestIdleRunnerIsNotReservedWithoutNeed(t *testing.T) {
	shared := runtime.Environment{Shared: true, PoolSize: 2}
	for name, test := range map[string]struct {
		env      runtime.Environment
		waitsFor string
		many     int32
	}{
		"the machine is full":  {shared, "memory exhausted", 3},
		"the pool has no size": {runtime.Environment{Shared: true}, "", 1},
		"nobody else may":      {runtime.Environment{Tenant: "many", PoolSize: 2}, "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			crowded(t, test.env, test.waitsFor, func(t *testing.T, p *Pool, ready func(), served *atomic.Int32) {
				if ready(); served.Load() != test.many || p.Status().Idle != 0 {
					t.Errorf("many have %d, %+v", served.Load(), p.Status())
				}
			})
		})
	}
}

// TestLoneWaitingClaimGetsTheOnlyRunner checks that the only waiting claim of a tenant gets the
// only runner in its turn.
func TestLoneWaitingClaimGetsTheOnlyRunner(t *testing.T) {
	crowded(t, runtime.Environment{Shared: true, PoolSize: 2}, "", func(t *testing.T, p *Pool, ready func(), served *atomic.Int32) {
		ready()
		ready() // many have had a turn, and one is kept
		if _, err := p.Claim(t.Context(), Claim{Claim: runtime.Claim{Tenant: "few"}}); err != nil {
			t.Fatal(err)
		}
		others := make(chan error, 1)
		go func() {
			_, err := p.Claim(t.Context(), Claim{Claim: runtime.Claim{Tenant: "others"}, WaitFor: time.Minute})
			others <- err
		}()
		settle(time.Millisecond)
		ready()
		select {
		case err := <-others:
			if err != nil || served.Load() != 3 {
				t.Errorf("%v; many have %d", err, served.Load())
			}
		default:
			t.Errorf("others have none; many have %d", served.Load())
		}
	})
}
