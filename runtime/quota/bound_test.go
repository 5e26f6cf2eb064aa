package quota

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// take makes a tenant acquire all that it gets.
func take(t *testing.T, b *Bound, id runtime.TenantID) (n int) {
	t.Helper()
	for ; ; n++ {
		err := b.Acquire(id)
		var e *runtime.Error
		switch {
		case err == nil:
		case errors.As(err, &e) && e.Code == runtime.CodeQuotaExceeded && e.Exceeded != nil:
			if got := *e.Exceeded; got != (runtime.Exceeded{Quota: "things", Limit: int64(n), Used: int64(n)}) || !strings.Contains(e.Message, b.Of) {
				t.Errorf("got %+v, %q, want %d %s", got, e.Message, n, b.Of)
			}
			return n
		default:
			t.Fatal(err)
		}
	}
}

// TestEachTenantGetsItsShare checks that each tenant gets one, however much the earlier ones took.
func TestEachTenantGetsItsShare(t *testing.T) {
	b := &Bound{Limit: 100, Quota: "things", Of: "red things"}
	for i, want := range []int{50, 25, 13, 6, 3, 2, 1, 1, 1, 1} {
		if got := take(t, b, runtime.TenantID(fmt.Sprint(i))); got != want {
			t.Errorf("tenant %d got %d instead of %d", i, got, want)
		}
	}
	for range 50 {
		b.Release("0")
	}
	b.Release("none")
	if err := b.Acquire("9"); err != nil { // what one gives back is for the others
		t.Error(err)
	}
	if b.taken != 54 || len(b.has) != 9 {
		t.Errorf("%d are taken, by %v", b.taken, b.has)
	}
	for range 200 {
		b.Adopt("1")
	}
	var e *runtime.Error
	if err := b.Acquire("1"); !errors.As(err, &e) || e.Exceeded.Used != 225 || e.Exceeded.Limit != 225 || !strings.Contains(e.Message, "100") {
		t.Errorf("got %+v, want 225 of 225, and the limit of 100", e)
	}
}

// TestBoundWalk checks that no tenant below its fair part is refused, and that all together exceed
// the limit by at most one for each tenant.
func TestBoundWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const tenants = 5
		limit := rapid.IntRange(1, 12).Draw(t, "limit")
		b := Bound{Limit: int64(limit)}
		has, taken := map[runtime.TenantID]int{}, 0
		tenant := rapid.SampledFrom([]runtime.TenantID{"a", "b", "c", "d", ""})
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				id := tenant.Draw(t, "tenant")
				err := b.Acquire(id)
				if allowed := has[id] == 0 || has[id] < limit-taken; allowed != (err == nil) {
					t.Fatalf("%q has %d, %d of %d are taken: %v", id, has[id], taken, limit, err)
				}
				if err == nil {
					has[id]++
					taken++
				}
			},
			"release": func(t *rapid.T) {
				id := tenant.Draw(t, "tenant")
				b.Release(id)
				if has[id] > 0 {
					has[id]--
					taken--
				}
			},
			"": func(t *rapid.T) {
				if b.taken != int64(taken) || taken > limit+tenants {
					t.Fatalf("%d are taken, not %d, of %d", b.taken, taken, limit)
				}
			},
		})
	})
}
