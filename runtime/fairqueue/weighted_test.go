package fairqueue

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestFairWalk checks that, between two turns of a waiting key, each other key gets at most its
// share and one turn more. While two keys wait, their shares differ by one turn of each. Order
// predicts the turns.
func TestFairWalk(t *testing.T) {
	weights := map[string]int{"a": 1, "b": 1, "c": 2, "d": 3, "e": 7, "f": 1000}
	rapid.Check(t, func(t *rapid.T) {
		var fair Weighted[string, int]
		waiting := map[string]int{}            // the model: items by key
		both := map[[2]string]map[string]int{} // turns of two keys since both wait
		missed := map[string]map[string]int{}  // turns of others since a key's last, or since it arrived
		share := func(n int, key string) float64 { return float64(n) / float64(weights[key]) }
		start := map[string]uint64{} // of a key's next turn, when it left
		gone := func(key string) {
			delete(waiting, key)
			delete(missed, key)
			for pair := range both {
				if pair[0] == key || pair[1] == key {
					delete(both, pair)
				}
			}
		}
		draw := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		serve := func(t *rapid.T) string {
			tenant := fair.First()
			if (tenant == nil) != (len(waiting) == 0) {
				t.Fatalf("first is %+v of %v", tenant, waiting)
			}
			if tenant == nil {
				return ""
			}
			key := tenant.ID
			fair.EndTurn(tenant)
			tenant.Queue--
			waiting[key]--
			missed[key] = map[string]int{}
			for other, turns := range missed {
				if other == key {
					continue
				}
				if turns[key]++; share(turns[key], key) > share(1, other)+share(1, key)+1e-3 {
					t.Fatalf("%s had %d turns while %s had none", key, turns[key], other)
				}
			}
			for pair, turns := range both {
				if pair[0] != key && pair[1] != key {
					continue
				}
				turns[key]++
				a, b := pair[0], pair[1]
				if diff := share(turns[a], a) - share(turns[b], b); max(diff, -diff) > share(1, a)+share(1, b)+1e-3 {
					t.Fatalf("%s had %d turns, %s %d", a, turns[a], b, turns[b])
				}
			}
			if waiting[key] == 0 {
				start[key] = tenant.tag.start
				fair.Remove(tenant)
				gone(key)
			}
			return key
		}
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				key := draw.Draw(t, "key")
				tenant := fair.Tenant(key, weights[key])
				if tenant.ID != key || tenant.Queue != waiting[key] {
					t.Fatalf("the tenant of %s is %+v, want %d items", key, tenant, waiting[key])
				}
				added := rapid.IntRange(1, 20).Draw(t, "items")
				tenant.Queue += added
				if waiting[key] == 0 {
					if tenant.tag.start < start[key] {
						t.Fatalf("%s gains %d by coming back", key, start[key]-tenant.tag.start)
					}
					for other := range waiting {
						both[[2]string{key, other}] = map[string]int{}
					}
					missed[key] = map[string]int{}
				}
				waiting[key] += added
			},
			"serve":  func(t *rapid.T) { serve(t) },
			"serve2": func(t *rapid.T) { serve(t); serve(t) },
			"leave": func(t *rapid.T) {
				key := draw.Draw(t, "key")
				if waiting[key] == 0 {
					t.Skip()
				}
				tenant := fair.Tenant(key, weights[key])
				tenant.Queue = 0
				start[key] = tenant.tag.start
				fair.Remove(tenant)
				gone(key)
			},
			"ahead": func(t *rapid.T) {
				var want []string
				for tenant := range fair.Order(func(f *Tenant[string, int]) int { return f.Queue }) {
					if want = append(want, tenant.ID); len(want) == 30 {
						break
					}
				}
				var got []string
				for range want {
					got = append(got, serve(t))
				}
				if !slices.Equal(got, want) {
					t.Fatalf("served %q, but Order says %q", got, want)
				}
			},
			"": func(t *rapid.T) {
				if fair.Len() != len(waiting) || fair.First() != nil && !fair.First().tag.waits {
					t.Fatalf("%d wait, want %d; first is %+v", fair.Len(), len(waiting), fair.First())
				}
				if len(waiting) == 0 {
					clear(start)
				}
				if len(waiting) == 0 && len(fair.tenants)+len(fair.clock.tags) > 0 {
					t.Fatalf("%d flows are remembered of an empty one", len(fair.tenants))
				}
			},
		})
	})
}

// turnsOf serves n items, and returns their keys.
func turnsOf(fair *Weighted[string, int], n int) (order string) {
	for range n {
		tenant := fair.First()
		order += tenant.ID
		fair.EndTurn(tenant)
		if tenant.Queue--; tenant.Queue == 0 {
			fair.Remove(tenant)
		}
	}
	return order
}

func TestWeightsAreInterleaved(t *testing.T) {
	var fair Weighted[string, int]
	fair.Tenant("a", 3).Queue = 100
	fair.Tenant("b", 1).Queue = 100
	fair.Tenant("c", 0).Queue = 1
	if got := turnsOf(&fair, 13); got != "abcaaabaaabaa" {
		t.Errorf("the order is %s, want abcaaabaaabaa", got)
	}
	fair.Tenant("a", 1) // its weight changed
	if got := turnsOf(&fair, 8); got != "abababab" {
		t.Errorf("the order is %s, want abababab", got)
	}
}

// TestReturningKeyGainsNothing uses a key with one item at a time that returns after each turn. It
// gets no more than its share, and gets it immediately if it requests less.
func TestReturningKeyGainsNothing(t *testing.T) {
	var fair Weighted[string, int]
	fair.Tenant("a", 1).Queue = 1000
	fair.Tenant("b", 2).Queue = 1000
	order := ""
	for range 30 {
		fair.Tenant("x", 1).Queue = 1
		turn := turnsOf(&fair, 1)
		order += turn
		if turn != "x" {
			fair.Tenant("x", 1).Queue = 0 // it leaves unserved
			fair.Remove(fair.Tenant("x", 1))
		}
	}
	count := func(key rune) (n int) {
		for _, k := range order {
			if k == key {
				n++
			}
		}
		return n
	}
	if a, b, x := count('a'), count('b'), count('x'); a < 7 || a > 8 || b < 14 || b > 16 || x < 7 || x > 8 {
		t.Errorf("%s: %d, %d, %d", order, a, b, x)
	}
	turnsOf(&fair, 300)
	fair.Tenant("y", 1).Queue = 50 // it gets nothing for the past
	if got := turnsOf(&fair, 40); fair.Tenant("y", 1).Queue < 39 {
		t.Errorf("%s: %d of 50 are left", got, fair.Tenant("y", 1).Queue)
	}
}

// TestPassedOverFlowGetsOneTurn checks that a tenant that was passed over, for example because it
// doesn't fit, is first afterwards but doesn't catch up on all missed turns.
func TestPassedOverFlowGetsOneTurn(t *testing.T) {
	var fair Weighted[string, int]
	fair.Tenant("a", 1).Queue = 100
	b := fair.Tenant("b", 1)
	b.Queue = 100
	for range 50 {
		fair.EndTurn(b)
	}
	if got := turnsOf(&fair, 6); got != "ababab" && got != "abbaba" {
		t.Errorf("the order is %s", got)
	}
}

// TestFairAllocatesNothing also covers a tenant that arrives and leaves.
func TestFairAllocatesNothing(t *testing.T) {
	var fair Weighted[string, int]
	if got := testing.AllocsPerRun(1000, func() {
		fair.Tenant("a", 3).Queue = 1
		turnsOf(&fair, 1)
	}); got > 1 { // the string that turnsOf returns
		t.Errorf("%v allocations", got)
	}
}

// BenchmarkFair serves one turn after another of many keys.
func BenchmarkFair(b *testing.B) {
	for _, keys := range []int{1, 50, 10_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			var fair Weighted[int, int]
			for key := range keys {
				fair.Tenant(key, 1+key%10)
			}
			b.ReportAllocs()
			for b.Loop() {
				fair.EndTurn(fair.First())
			}
		})
	}
}
