package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// TestQueueWalk compares the queue with a plain list. Each served claim is its caller's oldest.
// While a caller waits, each other caller of its tenant is served at most once. While a tenant
// waits, each other tenant gets its share by weight and at most one turn more. Positions predict the
// order.
func TestQueueWalk(t *testing.T) {
	weights := map[runtime.TenantID]int{"": 1, "t": 2, "u": 5}
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var model []*waiter
		callers := passes[string]{}           // by tenant and caller
		tenants := passes[runtime.TenantID]{} // the same, of tenants
		start := time.Unix(1000, 0)
		tenant := func(w *waiter) runtime.TenantID { return w.claim.Claim.Tenant }
		caller := func(w *waiter) string { return string(tenant(w)) + "/" + w.claim.Caller }
		forget := func(w *waiter) {
			at := slices.Index(model, w)
			model = slices.Delete(model, at, at+1)
			if !slices.ContainsFunc(model, func(o *waiter) bool { return caller(o) == caller(w) }) {
				delete(callers, caller(w))
			}
			if !slices.ContainsFunc(model, func(o *waiter) bool { return tenant(o) == tenant(w) }) {
				delete(tenants, tenant(w))
			}
		}
		pop := func(t *rapid.T) *waiter {
			w := q.pop()
			if (w == nil) != (len(model) == 0) {
				t.Fatalf("popped %+v of %d", w, len(model))
			}
			if w == nil {
				return nil
			}
			if at := slices.IndexFunc(model, func(o *waiter) bool { return caller(o) == caller(w) }); model[at] != w {
				t.Fatalf("a claim of %q was served before an older one", caller(w))
			}
			for other, times := range callers.served(caller(w)) {
				if strings.HasPrefix(other, string(tenant(w))+"/") && times > 1 {
					t.Fatalf("%q was served %d times while %q waited", caller(w), times, other)
				}
			}
			for other, times := range tenants.served(tenant(w)) {
				if most := weights[tenant(w)]/weights[other] + 2; times >= most {
					t.Fatalf("%q had %d turns while %q waited", tenant(w), times, other)
				}
			}
			forget(w)
			return w
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				w := &waiter{claim: Claim{Caller: rapid.SampledFrom([]string{"a", "b", "c", "d", ""}).Draw(t, "caller")}}
				w.claim.Claim.Tenant = rapid.SampledFrom([]runtime.TenantID{"", "t", "u"}).Draw(t, "tenant")
				w.claim.Weight = weights[tenant(w)]
				w.deadline = start.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "deadline")) * time.Second)
				q.push(w)
				model = append(model, w)
				callers.waits(caller(w))
				tenants.waits(tenant(w))
			},
			"pop": func(t *rapid.T) { pop(t) },
			"positions": func(t *rapid.T) {
				var want []*waiter
				for w := range q.order() {
					want = append(want, w)
				}
				if len(want) != len(model) {
					t.Fatalf("%d have a position, %d wait", len(want), len(model))
				}
				for i, w := range want[:min(len(want), rapid.IntRange(0, 20).Draw(t, "served"))] {
					if pop(t) != w {
						t.Fatalf("another claim is served as number %d", i+1)
					}
				}
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				w := rapid.SampledFrom(model).Draw(t, "claim")
				q.remove(w)
				q.remove(w) // it may leave just when it was served
				forget(w)
			},
			"expire": func(t *rapid.T) {
				now := start.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "now")) * time.Second)
				for w := q.expired(now); w != nil; w = q.expired(now) {
					if w.deadline.After(now) {
						t.Fatalf("expired %v too early", w.deadline.Sub(now))
					}
					forget(w)
				}
				for _, w := range model {
					if !w.deadline.After(now) {
						t.Fatalf("a claim is %v late", now.Sub(w.deadline))
					}
				}
			},
			"": func(t *rapid.T) {
				var next time.Time
				for _, w := range model {
					next = earlier(next, w.deadline)
				}
				if q.length() != len(model) || !q.nextDeadline().Equal(next) || q.tenants.Len() != len(tenants) {
					t.Fatalf("%d wait until %v, want %d until %v", q.length(), q.nextDeadline(), len(model), next)
				}
			},
		})
	})
}

// passes counts, for each waiting key, the turns of each other key since its arrival or its last turn.
type passes[K comparable] map[K]map[K]int

func (p passes[K]) waits(key K) {
	if p[key] == nil {
		p[key] = map[K]int{}
	}
}

// served counts a turn, and returns how many the key has had while each other key waited.
func (p passes[K]) served(key K) map[K]int {
	p[key] = map[K]int{}
	now := map[K]int{}
	for other, turns := range p {
		if other != key {
			turns[key]++
			now[other] = turns[key]
		}
	}
	return now
}

// TestTenantsGetTurnsByWeight checks the turns within each turn of a tenant of weight 1, however
// many claims and callers others have.
func TestTenantsGetTurnsByWeight(t *testing.T) {
	var q queue
	add := func(tenant runtime.TenantID, weight, callers, claims int) {
		for i := range claims {
			w := &waiter{claim: Claim{Caller: fmt.Sprint(i % callers), Weight: weight}}
			w.claim.Claim.Tenant = tenant
			q.push(w)
		}
	}
	add("flood", 1, 200, 2000)
	add("heavy", 3, 1, 600)
	add("", 0, 1, 200)
	got := map[runtime.TenantID]int{}
	for turn := range 200 {
		for range 5 {
			got[q.pop().claim.Claim.Tenant]++
		}
		for tenant, weight := range map[runtime.TenantID]int{"flood": 1, "heavy": 3, "": 1} {
			if late := got[tenant] - (turn+1)*weight; max(late, -late) > 1 {
				t.Fatalf("%q had %d of %d claims: %v", tenant, got[tenant], 5*(turn+1), got)
			}
		}
	}
}

// TestQueueOfOneAllocatesNothing checks a claim that is served immediately.
func TestQueueOfOneAllocatesNothing(t *testing.T) {
	var q queue
	w := &waiter{claim: Claim{Claim: runtime.Claim{Tenant: "t"}, Caller: "a", Weight: 3}, deadline: time.Unix(1, 0)}
	got := testing.AllocsPerRun(1000, func() {
		q.push(w)
		if q.pop() != w {
			t.Fatal("another claim was served")
		}
	})
	if got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

// many returns a queue with claims of 1,000 callers, who belong to this many tenants.
func many(waiting, tenants int) *queue {
	var q queue
	for i := range waiting {
		caller := i % 1000
		w := &waiter{claim: Claim{Caller: fmt.Sprint(caller), Weight: 1 + caller%5, Queued: NewQueued()}, deadline: time.Unix(int64(i), 0)}
		w.claim.Claim.Tenant = runtime.TenantID(fmt.Sprint(caller % tenants))
		q.push(w)
	}
	return &q
}

// BenchmarkQueue serves one claim after another from a long queue.
func BenchmarkQueue(b *testing.B) {
	for _, size := range []struct{ waiting, tenants int }{{0, 1}, {100, 1}, {100, 50}, {20_000, 1}, {20_000, 50}, {20_000, 1000}, {100_000, 50}} {
		b.Run(fmt.Sprint(size.waiting, "/", size.tenants), func(b *testing.B) {
			q := many(size.waiting+1, size.tenants)
			b.ReportAllocs()
			for b.Loop() {
				q.push(q.pop())
			}
		})
	}
}

// BenchmarkPositions computes the positions of all waiting claims.
func BenchmarkPositions(b *testing.B) {
	for _, waiting := range []int{1, 100, 20_000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			o := &loop{pool: &Pool{}, waiting: *many(waiting, 50)}
			for b.Loop() {
				o.pool.positions.due.Store(nil)
				o.computePositions(time.Unix(1, 0))
			}
		})
	}
}

// TestCallersTakeTurns uses several claims of one caller, followed by one each of two others. An
// expired claim keeps no turn for its caller.
func TestCallersTakeTurns(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		gate := make(chan struct{})
		defer close(gate)
		b.fake.OnStart(func(runtime.RunnerID) error { <-gate; return nil })
		served := make(chan string, 100)
		claim := func(caller string, waitFor time.Duration) {
			go func() {
				if _, err := b.Claim(t.Context(), Claim{Caller: caller, WaitFor: waitFor}); err == nil {
					served <- caller
				}
			}()
			settle(time.Millisecond)
		}
		claim("a", time.Minute)
		claim("b", time.Second) // expires
		for range 4 {
			claim("a", time.Hour)
		}
		settle(2 * time.Second)
		claim("c", time.Hour)
		claim("b", time.Hour)
		if got := b.Status().Waiting; got != 7 {
			t.Fatalf("%d wait, want 7", got)
		}
		var order []string
		for len(order) < 7 {
			select {
			case gate <- struct{}{}: // a runner is ready, unless it is no longer needed
				settle(time.Second)
			case <-time.After(time.Hour):
				t.Fatal("no runner starts")
			}
			for len(served) > 0 {
				order = append(order, <-served)
			}
		}
		if want := []string{"a", "c", "b", "a", "a", "a", "a"}; !slices.Equal(order, want) {
			t.Errorf("served were %q, want %q", order, want)
		}
	})
}

// TestFloodOfATenantDoesNotDelayOthers floods the pool with one tenant's claims from many callers.
// Each single claim of another tenant gets the first or second runner.
func TestFloodOfATenantDoesNotDelayOthers(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		gate := b.hold()
		defer close(gate)
		claim := func(tenant runtime.TenantID, caller string, served chan<- error) {
			go func() {
				_, err := b.Claim(t.Context(), Claim{Claim: runtime.Claim{Tenant: tenant}, Caller: caller, WaitFor: 24 * time.Hour})
				served <- err
			}()
		}
		flood, few := make(chan error, 1000), make(chan error, 1)
		for i := range 500 {
			claim("flood", fmt.Sprint(i%200), flood)
		}
		for range 20 {
			settle(time.Second)
			claim("few", "", few)
			settle(time.Second)
			before := len(flood)
			for len(few) == 0 && len(flood) < before+2 {
				gate <- struct{}{}
				settle(time.Second)
			}
			if len(flood)-before > 1 || len(few) != 1 {
				t.Fatalf("%d of the flood were served before it", len(flood)-before)
			}
			if err := <-few; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// pop serves the next claim; nil means none.
func (q *queue) pop() *waiter {
	w := q.next()
	if w != nil {
		q.serve(w)
	}
	return w
}
