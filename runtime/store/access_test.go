package store

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

func TestTokensAreRestored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	at := time.Unix(1_700_000_000, 123_000_000)
	one := access.Token{ID: "1", Kind: access.KindToken, Name: "ö", Tenant: "physics", Role: access.Client, CreatedAt: at.UTC(), CreatedBy: "0", ExpiresAt: at.Add(time.Hour).UTC(), Hash: []byte{0, 1, 255}}
	two := access.Token{ID: "2", Kind: access.KindSession, Name: "two", AllTenants: true, Role: access.Admin, CreatedAt: at.UTC(), Hash: []byte{2}}
	must := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	must(s.PutTokens(t.Context(), two, one),
		s.UseTokens(t.Context(), map[string]time.Time{"1": at, "nobody's": at}))
	one.RevokedAt = at.Add(time.Minute).UTC()
	must(s.PutTokens(t.Context(), one)) // leaves its last use
	one.LastUsedAt = time.UnixMilli(at.UnixMilli())
	for range 2 {
		all, err := s.Tokens(t.Context())
		if diff := cmp.Diff([]access.Token{one, two}, all); err != nil || diff != "" {
			t.Error(err, diff)
		}
		must(s.Close())
		s = open(t, path)
	}
	must(s.DeleteTokens(t.Context(), []string{"1", "nobody's"}), s.DeleteTokens(t.Context(), nil), s.UseTokens(t.Context(), nil))
	if all, err := s.Tokens(t.Context()); err != nil || len(all) != 1 || all[0].ID != "2" || !all[0].LastUsedAt.IsZero() {
		t.Error(all, err)
	}
}

func TestTenantsAreRestored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	runners, seconds := 5, int64(1<<40)
	physics := runtime.Tenant{ID: "physics", Weight: 3, Quotas: runtime.Quotas{Runners: &runners, CPUSecondsPerDay: &seconds}, CreatedAt: time.Unix(5, 0).UTC()}
	others := []runtime.Tenant{{ID: runtime.DefaultTenant, Weight: 1}, {ID: "a-z", Weight: 1}}
	for _, tenant := range append(slices.Clone(others), runtime.Tenant{ID: "physics", Weight: 1}, physics) {
		if err := s.PutTenant(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	all, err := s.Tenants(t.Context())
	if diff := cmp.Diff(append(slices.Clone(others), physics), all); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for range 2 { // safe to repeat
		if err := s.DeleteTenant(t.Context(), "a-z"); err != nil {
			t.Error(err)
		}
	}
	if all, err = s.Tenants(t.Context()); err != nil || len(all) != 2 {
		t.Error(all, err)
	}
}

// TestExecutionsAndBatchesOfATenant checks pages and counts of one tenant, also with other filters,
// and that the default tenant doesn't mean all.
func TestExecutionsAndBatchesOfATenant(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	tenants := []runtime.TenantID{runtime.DefaultTenant, "physics", "chemistry"}
	for i := range 12 {
		tenant := tenants[i%3]
		x := runtime.Execution{ID: runtime.ExecutionID(fmt.Sprintf("%02d", i)), RunnerID: "r", EnvironmentID: "a", Tenant: tenant, State: runtime.ExecutionPending}
		if _, _, err := s.AddExecution(t.Context(), x, []byte("start")); err != nil {
			t.Fatal(err)
		}
		b := runtime.Batch{ID: runtime.BatchID(fmt.Sprintf("%02d", i)), RunnerID: "r", EnvironmentID: "a", Tenant: tenant, CaseCount: 1, State: runtime.BatchRunning}
		if _, _, err := s.AddBatch(t.Context(), b, []byte("start"), []BatchStep{{Value: []byte("step")}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, tenant := range append(tenants, "nobody's") {
		want := []string{}
		for n := i; n < 12 && i < 3; n += 3 {
			want = append(want, fmt.Sprintf("%02d", n))
		}
		got := []string{}
		for after := runtime.ExecutionID(""); ; {
			page, err := s.Executions(t.Context(), ExecutionFilter{Tenant: &tenant, RunnerID: "r", EnvironmentID: "a", States: []runtime.ExecutionState{runtime.ExecutionPending}}, 3, after)
			if err != nil || page.Total != len(want) {
				t.Fatalf("%q: %d of %d, %v", tenant, page.Total, len(want), err)
			}
			for _, x := range page.Executions {
				if x.Tenant != tenant {
					t.Errorf("%s is %s's, want %s", x.ID, x.Tenant, tenant)
				}
				got, after = append(got, string(x.ID)), x.ID
			}
			if !page.More {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q has %v, not %v", tenant, got, want)
		}
		batches, total, err := s.Batches(t.Context(), BatchFilter{Tenant: &tenant, RunnerID: "r", NewestFirst: true}, 10, "")
		if err != nil || total != len(want) || len(batches) != len(want) {
			t.Errorf("%q has %d batches of %d, %v", tenant, len(batches), total, err)
		}
		for _, b := range batches {
			if b.Tenant != tenant {
				t.Errorf("%s is %s's, want %s", b.ID, b.Tenant, tenant)
			}
		}
	}
	if page, err := s.Executions(t.Context(), ExecutionFilter{}, 100, ""); err != nil || page.Total != 12 {
		t.Error(page.Total, err)
	}
	if all, total, err := s.Batches(t.Context(), BatchFilter{}, 100, ""); err != nil || total != 12 || len(all) != 12 {
		t.Error(total, err)
	}
}
