package pool

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/clustertest"
)

func TestUseDoesNotPlan(t *testing.T) {
	for name, use := range map[string]func(context.Context, *Pool, runtime.RunnerID) error{
		"a use and its end": func(ctx context.Context, p *Pool, id runtime.RunnerID) error {
			_, err := p.Use(ctx, id)
			p.Done(ctx, id)
			return err
		},
		"a renewal": func(ctx context.Context, p *Pool, id runtime.RunnerID) error {
			_, err := p.Renew(ctx, id)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 1, func(t *testing.T, b *bed) {
				settle(time.Second)
				r := b.claim(t, Claim{Claim: runtime.Claim{InactivityTimeout: time.Hour}})
				settle(time.Second)
				before := b.plans.Load()
				for range 10 {
					if err := use(t.Context(), b.Pool, r.ID); err != nil {
						t.Fatal(err)
					}
				}
				if n := b.plans.Load() - before; n != 0 {
					t.Errorf("the pool planned %d times, want 0", n)
				}
			})
		})
	}
}

func TestClaimExpiresOnTimeAfterItsLastUse(t *testing.T) {
	const timeout = 10 * time.Second // less than the pool lists its runners without a hint
	ended := func(ctx context.Context, p *Pool, id runtime.RunnerID) { p.Done(ctx, id) }
	for name, test := range map[string]struct {
		inUse time.Duration
		last  func(context.Context, *Pool, runtime.RunnerID)
	}{
		"a short use":                    {0, ended},
		"a use of more than a tenth":     {timeout / 5, ended},
		"a use of more than the timeout": {5 * timeout, ended},
		"a use of more than a list":      {2 * relist, ended},
		"a renewal after a use": {timeout / 5, func(ctx context.Context, p *Pool, id runtime.RunnerID) {
			p.Done(ctx, id)
			time.Sleep(timeout / 2)
			_, _ = p.Renew(ctx, id)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 1, func(t *testing.T, b *bed) {
				settle(time.Second)
				r := b.claim(t, Claim{Claim: runtime.Claim{InactivityTimeout: timeout}})
				settle(time.Second)
				if _, err := b.Use(t.Context(), r.ID); err != nil {
					t.Fatal(err)
				}
				settle(test.inUse)
				test.last(t.Context(), b.Pool, r.ID)
				settle(timeout - time.Millisecond)
				if s := b.Status(); s.Claimed != 1 {
					t.Errorf("just before its time: %d claimed, want 1", s.Claimed)
				}
				settle(time.Millisecond)
				if s := b.Status(); s.Claimed != 0 {
					t.Errorf("at its time: %d claimed, want 0", s.Claimed)
				}
			})
		})
	}
}

// An adopted claim may end later than one that was used just now.
func TestAdoptedClaimExpiresOnTimeAfterARenewal(t *testing.T) {
	const timeout = 10 * time.Second
	run(t, 0, func(t *testing.T, b *bed) {
		settle(time.Second)
		r := b.claim(t, Claim{WaitFor: time.Second, Claim: runtime.Claim{InactivityTimeout: timeout}})
		second := b.open() // as after a restart
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = second.Run(ctx) })
		settle(10 * time.Millisecond)
		if _, err := second.Renew(ctx, r.ID); err != nil {
			t.Fatal(err)
		}
		settle(timeout)
		if s := second.Status(); s.Claimed != 0 {
			t.Errorf("at its time: %d claimed, want 0", s.Claimed)
		}
		cancel()
		group.Wait()
	})
}

func TestRunnerInUseKeepsBeingRenewed(t *testing.T) {
	const timeout = 10 * time.Second
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		r := b.claim(t, Claim{Claim: runtime.Claim{InactivityTimeout: timeout}})
		settle(time.Second)
		if _, err := b.Use(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			settle(timeout / 20)
			runners, err := b.fake.Runners(t.Context(), b.env.ID)
			if err != nil {
				t.Fatal(err)
			}
			for _, stored := range runners {
				if left := time.Until(stored.Claim.ExpiresAt); stored.ID == r.ID && left < timeout-timeout/5 {
					t.Fatalf("the stored claim of a runner in use ends in %v, want at least %v", left, timeout-timeout/5)
				}
			}
		}
		b.want(t, 1, 1)
	})
}

func TestQueuePositionDoesNotPlan(t *testing.T) {
	runOver(t, 0, func(fake *clustertest.Fake) { fake.StartDelay(time.Hour) }, func(t *testing.T, b *bed) {
		ctx, cancel := context.WithCancel(t.Context())
		queued := NewQueued()
		var group sync.WaitGroup
		group.Go(func() { _, _ = b.Claim(ctx, Claim{WaitFor: time.Hour, Queued: queued}) })
		settle(time.Second)
		before := b.plans.Load()
		if got := b.QueuePosition(ctx, queued).Position; got != 1 {
			t.Errorf("position %d, want 1", got)
		}
		settle(0)
		if n := b.plans.Load() - before; n != 0 {
			t.Errorf("the pool planned %d times, want 0", n)
		}
		cancel()
		group.Wait()
	})
}
