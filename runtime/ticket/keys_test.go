package ticket

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestKeysGiveTheSameTicket(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *bed) {
		order := b.order("t", time.Hour)
		order.Key, order.Input = "k", "x"
		first := b.open(t, order)
		if again := b.open(t, order); again.ID != first.ID || b.pool.Status().Waiting != 1 {
			t.Errorf("%+v, then %+v", first, again)
		}
		other := order
		other.Input = "y"
		if _, err := b.Open(t.Context(), other); runtime.CodeOf(err) != runtime.CodeConflict {
			t.Errorf("got %v, want CONFLICT", err)
		}
		foreign := b.order("u", time.Hour)
		foreign.Key, foreign.Input = "k", "x"
		if got := b.open(t, foreign); got.ID == first.ID || got.Tenant != "u" {
			t.Errorf("%+v", got)
		}
		b.starts <- struct{}{}
		settle(time.Second)
		if again := b.open(t, order); again.ID != first.ID || again.State != Claimed {
			t.Errorf("%+v", again)
		}
		settle(DefaultGrace + keep + time.Second)
		if again := b.open(t, order); again.ID == first.ID {
			t.Errorf("%+v is known", again)
		}
	})
}

// TestKeysOfEndedTicketsClaimAgain checks that a ticket that ended without a runner frees its key,
// so that a retry gets a new one.
func TestKeysOfEndedTicketsClaimAgain(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, b *bed, id runtime.TicketID){
		"CANCELLED": func(t *testing.T, b *bed, id runtime.TicketID) {
			if _, err := b.Cancel(id); err != nil {
				t.Error(err)
			}
		},
		"nobody looked": func(*testing.T, *bed, runtime.TicketID) { settle(DefaultGrace + time.Second) },
		"nobody saw its runner": func(_ *testing.T, b *bed, _ runtime.TicketID) {
			b.starts <- struct{}{}
			settle(DefaultGrace + time.Second)
		},
		"EXPIRED": func(t *testing.T, b *bed, id runtime.TicketID) {
			for range 4 {
				settle(DefaultGrace - time.Second)
				if _, err := b.Get(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		},
		"FAILED": func(t *testing.T, b *bed, _ runtime.TicketID) {
			if err := b.pool.Delete(t.Context(), false); err != nil {
				t.Error(err)
			}
			settle(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Options{}, func(t *testing.T, b *bed) {
				order := b.order("t", time.Minute)
				order.Key, order.Input = "k", "x"
				first := b.open(t, order)
				end(t, b, first.ID)
				ended, err := b.Get(t.Context(), first.ID)
				if err != nil || ended.State == Waiting || ended.State == Claimed || ended.Err == nil {
					t.Fatalf("%+v, %v", ended, err)
				}
				order.Input = "y"
				order.Claim = b.order("t", time.Minute).Claim
				if name == "FAILED" {
					if _, err := b.Open(t.Context(), order); runtime.CodeOf(err) != runtime.CodeClusterUnavailable && runtime.CodeOf(err) != runtime.CodeEnvironmentNotFound {
						t.Errorf("it isn't tried again: %v", err)
					}
					return
				}
				again := b.open(t, order)
				if again.ID == first.ID || again.State != Waiting {
					t.Errorf("%+v, then %+v", ended, again)
				}
				settle(keep - DefaultGrace) // the old one is forgotten, and takes nothing from the new one
				if third := b.open(t, order); third.ID == first.ID {
					t.Errorf("%+v", third)
				}
			})
		})
	}
}

// TestDeletedTenantsTicketsAreForgotten checks that a new tenant with the same name can use the
// keys, and that other tenants keep their tickets.
func TestDeletedTenantsTicketsAreForgotten(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *bed) {
		keyed := func(tenant runtime.TenantID, key string) Order {
			order := b.order(tenant, time.Hour)
			order.Key, order.Input = key, "x"
			return order
		}
		got := b.open(t, keyed("t", "a"))
		b.starts <- struct{}{}
		settle(time.Second)
		b.is(t, got.ID, Claimed)
		waits, foreign := b.open(t, keyed("t", "b")), b.open(t, keyed("u", "a"))
		b.Forget("t")
		settle(time.Second)
		for _, id := range []runtime.TicketID{got.ID, waits.ID} {
			if _, err := b.Tenant(id); runtime.CodeOf(err) != runtime.CodeTicketNotFound {
				t.Errorf("got %v, want TICKET_NOT_FOUND", err)
			}
		}
		b.is(t, foreign.ID, Waiting)
		if again := b.open(t, keyed("t", "a")); again.ID == got.ID || again.State != Waiting {
			t.Errorf("%+v", again)
		}
		settle(time.Millisecond) // the ticket is opened before the pool shows that it waits
		if waiting := b.pool.Status().Waiting; waiting != 2 {
			t.Errorf("%d claims wait, want 2", waiting)
		}
	})
}
