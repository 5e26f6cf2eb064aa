package ticket

import (
	"context"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
)

func (b *bed) held(tenant runtime.TenantID) Order {
	order := b.order(tenant, time.Hour)
	order.Key, order.Held = "h", true
	return order
}

// TestTicketsOfAHolder checks that a holder's ticket is the same while it waits. Its runner stays
// although no client has seen it, because another claim of the holder may use it already.
func TestTicketsOfAHolder(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *bed) {
		first := b.open(t, b.held("t"))
		if again := b.open(t, b.held("t")); again.ID != first.ID || !again.Resumed || first.Resumed || b.pool.Status().Waiting != 1 {
			t.Errorf("%+v, then %+v", first, again)
		}
		b.starts <- struct{}{}
		settle(2 * DefaultGrace)
		if got, err := b.Cancel(first.ID); err != nil || got.State != Claimed || got.Resumed {
			t.Errorf("%+v, %v", got, err)
		}
		b.claimed(t, 1)
		first = b.is(t, first.ID, Claimed)
		resuming := b.held("t")
		resuming.Claim = func(context.Context, *pool.Queued) (runtime.RunnerID, bool, error) { return first.Runner, false, nil }
		if again := b.open(t, resuming); again.ID == first.ID || again.State != Claimed || !again.Resumed || again.Runner != first.Runner {
			t.Errorf("%+v, then %+v", first, again)
		}
	})
}

// TestCancelledTicketsOfAHolderReleaseNothing cancels at every stage. A runner that another claim
// of the holder may use must stay.
func TestCancelledTicketsOfAHolderReleaseNothing(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *bed) {
		order := b.held("t")
		decide := make(chan struct{})
		order.Claim = func(context.Context, *pool.Queued) (runtime.RunnerID, bool, error) { <-decide; return "r", true, nil }
		got := b.open(t, order)
		if got, err := b.Cancel(got.ID); err != nil || got.State != Cancelled {
			t.Errorf("%+v, %v", got, err)
		}
		close(decide)
		settle(2 * DefaultGrace)
		if len(b.released) > 0 {
			t.Errorf("%v was released", b.released)
		}
	})
}
