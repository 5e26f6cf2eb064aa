package fairqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// TestTenantSlots: one tenant has many slow calls, and another has one.
func TestTenantSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, each = 8, 2
		s := NewTenantSlots(total, each)
		release := make(chan struct{})
		var calls sync.WaitGroup
		var mu sync.Mutex // guards working
		working := 0
		for range 3 * total {
			calls.Go(func() {
				_ = s.Do(t.Context(), "slow", func() error {
					mu.Lock()
					working++
					mu.Unlock()
					<-release
					return nil
				})
			})
		}
		synctest.Wait()
		if working != each || len(s.all) != each {
			t.Errorf("full tenant: %d calls work in %d shared slots, want %d", working, len(s.all), each)
		}
		failed := errors.New("failed")
		if err := s.Do(t.Context(), "other", func() error { return failed }); err != failed {
			t.Errorf("another tenant: got %v, want the error of its work", err)
		}
		over := errors.New("over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, over)
		defer cancel()
		if err := s.Do(ctx, "slow", func() error { t.Error("it worked without a slot"); return nil }); err != over {
			t.Errorf("full tenant until ctx ends: got %v, want %v", err, over)
		}
		close(release)
		calls.Wait()
		if working != 3*total || len(s.all) != 0 || len(s.tenants) != 0 {
			t.Errorf("at the end: %d calls worked, %d slots are taken, %d tenants are kept; want %d, 0, 0", working, len(s.all), len(s.tenants), 3*total)
		}
	})
}

// TestOneTenantsCallsTakeTurns checks that, while one tenant's call reads, its other calls don't occupy the
// slots of all tenants.
func TestOneTenantsCallsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewTenantSlots(2, 1)
		let := make(chan struct{})
		done := make(chan runtime.TenantID, 10)
		call := func(id runtime.TenantID) {
			_ = s.Do(t.Context(), id, func() error { <-let; done <- id; return nil })
		}
		for range 5 {
			go call("loud")
		}
		synctest.Wait()
		if len(s.all) != 1 {
			t.Error("one tenant has slots:", len(s.all))
		}
		for _, id := range []runtime.TenantID{"a", "b"} {
			go call(id)
			synctest.Wait()
		}
		for range 4 { // two that read, and two that wait
			let <- struct{}{}
			synctest.Wait()
		}
		first := []runtime.TenantID{<-done, <-done, <-done, <-done}
		if !slices.Contains(first, "a") || !slices.Contains(first, "b") {
			t.Error("the first were", first)
		}
		close(let)
		synctest.Wait()
		if len(s.tenants) != 0 || len(s.all) != 0 {
			t.Error("left:", s.tenants, len(s.all))
		}
	})
}
