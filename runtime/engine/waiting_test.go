package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/usage"
	"github.com/rockpool/rockpool/test/wait"
)

// waits makes waiting claims, one after the other, and returns a function that ends them.
func (b *bed) waits(t *testing.T, claims ...request.Claim) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	for _, in := range claims {
		in.WaitFor = ptr(600)
		_, before := b.usage.WaitingClaims(asServer(t), request.Waiting{}, 1, "")
		go func() {
			_, _ = b.Runners.Claim(access.With(ctx, access.FromContext(by(t, in))), in)
			ended <- struct{}{}
		}()
		wait.For(t, "the claim waits", func() bool {
			_, now := b.usage.WaitingClaims(asServer(t), request.Waiting{}, 1, "")
			return now == before+1
		})
	}
	return func() {
		cancel()
		for range claims {
			<-ended
		}
	}
}

// TestWaitingClaims checks that waiting claims, with or without a ticket, are listed with their
// positions until they stop waiting.
func TestWaitingClaims(t *testing.T) {
	b := newBed(t)
	starts := make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { <-starts; return nil })
	t.Cleanup(func() { close(starts) })
	for _, id := range []runtime.EnvironmentID{"a", "b"} {
		if _, _, err := b.Environments.Put(asServer(t), request.Environment{ID: id, Shared: ptr(true), PoolSize: ptr(0)}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	leave := b.waits(t, request.Claim{EnvironmentID: "a", Tenant: "x"}, request.Claim{EnvironmentID: "a", Tenant: "x"}, request.Claim{EnvironmentID: "b", Tenant: "y"}, request.Claim{EnvironmentID: "a", Tenant: "y"})
	b.laterWaits(t, request.Claim{})
	type row struct {
		env      runtime.EnvironmentID
		tenant   runtime.TenantID
		position int
	}
	list := func(filter request.Waiting, first int, after string) (rows []row, last string, total int) {
		var all []usage.WaitingClaim
		type position struct {
			env      runtime.EnvironmentID
			position int
		}
		wait.For(t, "the positions are known", func() bool { // a claim that has just arrived may have no position yet, nor may others
			all, total = b.usage.WaitingClaims(asServer(t), filter, first, after)
			positions := map[position]bool{}
			for _, c := range all {
				positions[position{c.EnvironmentID, c.Position}] = true
			}
			return len(positions) == len(all) && !slices.ContainsFunc(all, func(c usage.WaitingClaim) bool { return c.Position == 0 })
		})
		for _, c := range all {
			rows, last = append(rows, row{c.EnvironmentID, c.Tenant, c.Position}), c.ID
			if c.Since.Before(began) || c.Since.After(time.Now()) || c.ExpiresAt.Sub(c.Since) < 600*time.Second {
				t.Errorf("since %v until %v", c.Since, c.ExpiresAt)
			}
		}
		return rows, last, total
	}
	want := []row{{"a", "x", 1}, {"a", "x", 4}, {"b", "y", 1}, {"a", "y", 2}, {"a", "", 3}}
	if got, _, total := list(request.Waiting{}, 100, ""); !slices.Equal(got, want) || total != 5 {
		t.Errorf("%v of %d", got, total)
	}
	got, last, total := list(request.Waiting{}, 2, "")
	if rest, _, all := list(request.Waiting{}, 100, last); !slices.Equal(got, want[:2]) || !slices.Equal(rest, want[2:]) || total != 5 || all != 5 {
		t.Errorf("%v and %v of %d and %d", got, rest, total, all)
	}
	if got, _, total := list(request.Waiting{Tenant: ptr(runtime.TenantID("y"))}, 100, ""); !slices.Equal(got, []row{want[2], want[3]}) || total != 2 {
		t.Errorf("of y: %v of %d", got, total)
	}
	if got, _, total := list(request.Waiting{EnvironmentID: "b"}, 100, ""); !slices.Equal(got, []row{want[2]}) || total != 1 {
		t.Errorf("for b: %v of %d", got, total)
	}
	leave()
	wait.For(t, "only the ticket's claim waits", func() bool {
		got, _, total := list(request.Waiting{}, 100, "")
		return total == 1 && slices.Equal(got, []row{{"a", "", 1}})
	})
}

// TestWaitingForAQuotaIsListed checks that a claim waiting for its tenant's quota is listed without
// a position.
func TestWaitingForAQuotaIsListed(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.config.Quotas = quota.New()
	b.config.Quotas.SetTenant(runtime.Tenant{ID: "x", Quotas: runtime.Quotas{Runners: ptr(0)}})
	b.start(t)
	b.shared(t, "a", 1)
	leave := b.waits(t, request.Claim{EnvironmentID: "a", Tenant: "x"})
	if all, _ := b.usage.WaitingClaims(asServer(t), request.Waiting{}, 9, ""); len(all) != 1 || all[0].Position != 0 || all[0].EnvironmentID != "a" {
		t.Errorf("%+v", all)
	}
	leave()
	if _, total := b.usage.WaitingClaims(asServer(t), request.Waiting{}, 9, ""); total != 0 {
		t.Errorf("%d wait after they left, want 0", total)
	}
}
