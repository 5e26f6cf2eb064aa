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
				defer start(t, s)()
				var full []Job
				var before []Allocation
				for i := range 4 {
					j := job(fmt.Sprint("full-", i), "full", runtime.PriorityRefill)
					full = append(full, j)
					before = append(before, Allocation{ID: runtime.AllocationID(j.ID), Job: j.ID, Status: runtime.AllocationRunning})
				}
				var wanted []Job
				for i := range 50 {
					environment := fmt.Sprint("e", i)
					wanted = append(wanted,
						of("many", job(fmt.Sprintf("refill-%02d", i), environment, runtime.PriorityRefill)),
						of("many", job(fmt.Sprintf("more-%02d", i), environment, runtime.PriorityRefill)))
					if i < 5 {
						wanted = append(wanted, of("many", job(fmt.Sprintf("claim-%02d", i), environment, runtime.PriorityWaiting)))
					}
				}
				wanted = append(wanted,
					of("few", job("few-refill", "f", runtime.PriorityRefill)),
					of("few", job("few-claim", "f", runtime.PriorityWaiting)))
				if restored {
					full = append(full, wanted...)
				}
				if err := s.Restore(full, before); err != nil {
					t.Fatal(err)
				}
				s.Restored()
				if !restored {
					synctest.Wait()
					register(t, s, wanted...)
				}
				synctest.Wait()
				// One after the other ends, and the one that gets the room is next.
				var order []runtime.RunnerID
				for _, a := range before {
					update(t, s, a.ID, runtime.AllocationComplete)
					synctest.Wait()
					order = append(order, news(t, s, wanted, order))
				}
				for len(order) < 10 {
					end(t, s, order[len(order)-1])
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
func news(t *testing.T, s *Scheduler, wanted []Job, others []runtime.RunnerID) runtime.RunnerID {
	t.Helper()
	var all []runtime.RunnerID
	for _, j := range wanted {
		if placed(s, j.ID) && !slices.Contains(others, j.ID) {
			all = append(all, j.ID)
		}
	}
	if len(all) != 1 {
		t.Fatalf("%q were placed after %q", all, others)
	}
	return all[0]
}
