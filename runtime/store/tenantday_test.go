package store

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/runtime"
)

// finish ends an execution of a tenant.
func finish(t *testing.T, s *Store, id string, tenant runtime.TenantID, at time.Time, usage runtime.Usage) {
	t.Helper()
	x := runtime.Execution{ID: runtime.ExecutionID(id), Tenant: tenant, State: runtime.ExecutionPending}
	if _, _, err := s.AddExecution(t.Context(), x, []byte("start")); err != nil {
		t.Fatal(err)
	}
	x.State, x.Usage, x.Timestamps.FinishedAt = runtime.ExecutionFinished, usage, at
	if _, err := s.FinishExecution(t.Context(), x, 0); err != nil {
		t.Fatal(err)
	}
}

func TestDayUseCountsEachExecutionOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	late := monday.Add(24*time.Hour - time.Millisecond).In(time.FixedZone("", 5*3600)) // Tuesday there
	usage := runtime.Usage{User: 1500 * time.Microsecond, System: 2 * time.Second, OutputBytes: 100}
	finish(t, s, "1", "a", monday, usage)
	finish(t, s, "2", "a", late, usage)
	finish(t, s, "3", runtime.DefaultTenant, late, runtime.Usage{User: -time.Second, OutputBytes: -1}) // nothing is taken back
	finish(t, s, "4", "a", monday.AddDate(0, 0, 1), usage)

	// The same executions again, concurrently, and others that aren't stored.
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			x := runtime.Execution{ID: []runtime.ExecutionID{"1", "none"}[i%2], Tenant: "a", State: runtime.ExecutionFinished, Usage: usage}
			x.Timestamps.FinishedAt = monday
			if _, err := s.FinishExecution(t.Context(), x, 0); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	want := []TenantDay{
		{Tenant: "", Executions: 1},
		{Tenant: "a", Executions: 2, CPU: 2 * (2*time.Second + 1500*time.Microsecond), OutputBytes: 200},
		{Tenant: "a", Executions: 1, CPU: 2*time.Second + 1500*time.Microsecond, OutputBytes: 100},
	}
	for day, want := range map[time.Time][]TenantDay{late: want[:2], late.Add(time.Millisecond): want[2:], monday.Add(-1): nil} {
		if got, err := s.DayUse(t.Context(), day); err != nil || cmp.Diff(want, got) != "" {
			t.Error(day, err, cmp.Diff(want, got))
		}
	}
}

// TestOldDaysAreForgotten checks that the first execution of a later day deletes them.
func TestOldDaysAreForgotten(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	first := time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC)
	for i, days := range []int{0, 1, keepDays, keepDays + 1} {
		finish(t, s, string(rune('0'+i)), "a", first.AddDate(0, 0, days), runtime.Usage{})
		for day, known := range map[int]bool{0: days <= keepDays, 1: i > 0, keepDays: i > 1, keepDays + 1: i > 2} {
			if use, err := s.DayUse(t.Context(), first.AddDate(0, 0, day)); err != nil || len(use) == 1 != known {
				t.Errorf("after %d days: %+v, %v of day %d", days, use, err, day)
			}
		}
	}
}
