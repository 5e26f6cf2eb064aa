package quota

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// TestLedgerWalk compares the ledger with a list of everything that happened: it refuses nothing
// that the quotas allow, and allows nothing beyond them, even while limits change.
func TestLedgerWalk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := -1
		var held [resources]int
		var claims []time.Time
		synctest.Test(t, func(*testing.T) {
			l := New()
			rt.Repeat(map[string]func(*rapid.T){
				"limit": func(t *rapid.T) {
					if limit = rapid.IntRange(-1, 6).Draw(t, "limit"); limit < 0 {
						l.Remove("a")
					} else {
						l.SetTenant(runtime.Tenant{ID: "a", Quotas: quotasOf(limit)})
					}
				},
				"acquire": func(t *rapid.T) {
					r := Resource(rapid.IntRange(0, int(resources)-1).Draw(t, "resource"))
					err := l.Of("a").Acquire(r, 1)
					if allowed := limit < 0 || held[r] < limit; allowed != (err == nil) {
						t.Fatalf("%s: %d of %d are taken: %v", r, held[r], limit, err)
					}
					if err == nil {
						held[r]++
					}
				},
				"release": func(t *rapid.T) {
					r := Resource(rapid.IntRange(0, int(resources)-1).Draw(t, "resource"))
					l.Of("a").Release(r, 1)
					held[r] = max(0, held[r]-1)
				},
				"adopt": func(t *rapid.T) {
					r := Resource(rapid.IntRange(0, int(resources)-1).Draw(t, "resource"))
					l.Of("a").Adopt(r, 2)
					held[r] += 2
				},
				"claim": func(t *rapid.T) {
					now := time.Now()
					young := func(at time.Time) int { // claims that are younger than 60 s then
						return len(claims) - slices.IndexFunc(append(slices.Clone(claims), at), func(c time.Time) bool { return at.Sub(c) < time.Minute })
					}
					err := l.Of("a").Claim()
					if allowed := limit < 0 || young(now) < limit; allowed != (err == nil) {
						t.Fatalf("%d of %d claims: %v", young(now), limit, err)
					}
					if err == nil {
						claims = append(claims, now)
						return
					}
					if after := err.(*runtime.Error).Exceeded.RetryAfter; limit > 0 && (young(now.Add(after)) >= limit || young(now.Add(after-1)) < limit) { //nolint:errorlint // it is no other
						t.Fatalf("%v is not when there is room again", after)
					}
				},
				"wait": func(t *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond)
				},
				"": func(t *rapid.T) {
					u := l.Usage("a")
					for r, amount := range []Amount{u.Runners, u.Waiting, u.Executions, u.Subscriptions} {
						if amount.Used != int64(held[r]) {
							t.Fatalf("%s: %d instead of %d", Resource(r), amount.Used, held[r])
						}
					}
				},
			})
		})
	})
}
