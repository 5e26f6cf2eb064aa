package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rockpool/rockpool/runtime"
)

func of(tenant string, j Job) Job { j.Tenant = runtime.TenantID(tenant); return j }

// One tenant wants runners in each of 50 environments, for claims and for refills. Another one's
// claim and refill, which come last, are placed after one each of the first tenant's. Claims go
// before refills of any tenant.
func TestTenantsTakeTurns(t *testing.T) {
	for name, restored := range map[string]bool{"registered": false, "restored": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, Config{})
				var full []Job
				for i := range 4 {
					j := wish(fmt.Sprint("full-", i), "full", runtime.PriorityRefill)
					full = append(full, j)
					s.Restore(j, runtime.AllocationRunning)
				}
				var wanted []Job
				for i := range 50 {
					environment := fmt.Sprint("e", i)
					wanted = append(wanted,
						of("many", wish(fmt.Sprintf("refill-%02d", i), environment, runtime.PriorityRefill)),
						of("many", wish(fmt.Sprintf("more-%02d", i), environment, runtime.PriorityRefill)))
					if i < 5 {
						wanted = append(wanted, of("many", wish(fmt.Sprintf("claim-%02d", i), environment, runtime.PriorityWaiting)))
					}
				}
				wanted = append(wanted,
					of("few", wish("few-refill", "f", runtime.PriorityRefill)),
					of("few", wish("few-claim", "f", runtime.PriorityWaiting)))
				for _, j := range wanted {
					if restored {
						s.Restore(j, "")
					} else {
						register(t, s, j)
					}
				}
				defer start(s)()
				synctest.Wait()
				// One after the other ends, and the one that gets the room is next.
				var order []runtime.RunnerID
				for _, j := range full {
					s.end(j.ID)
					synctest.Wait()
					order = append(order, news(t, s, wanted, order))
				}
				for len(order) < 10 {
					s.end(order[len(order)-1])
					synctest.Wait()
					order = append(order, news(t, s, wanted, order))
				}
				claims, refills := order[:6], order[6:]
				if slices.ContainsFunc(claims, func(id runtime.RunnerID) bool { return !strings.Contains(string(id), "claim") }) {
					t.Errorf("a refill went before a claim: %q", order)
				}
				if !slices.Contains(claims[:2], "few-claim") || !slices.Contains(refills[:2], "few-refill") {
					t.Errorf("the few have more than one of the many before them: %q", order)
				}
			})
		})
	}
}

// news returns the one job that was placed since others were.
func news(t *testing.T, s *bed, wanted []Job, others []runtime.RunnerID) runtime.RunnerID {
	t.Helper()
	var all []runtime.RunnerID
	for _, j := range wanted {
		if s.placed(j.ID) && !slices.Contains(others, j.ID) {
			all = append(all, j.ID)
		}
	}
	if len(all) != 1 {
		t.Fatalf("%q were placed after %q", all, others)
	}
	return all[0]
}
