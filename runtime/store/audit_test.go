package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// auditRows returns rows made at intervals of a second, whose Value is their number.
func auditRows(n int) (rows []AuditRow) {
	start := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	for i := range n {
		at := start.Add(time.Duration(i) * time.Second)
		rows = append(rows, AuditRow{
			ID: firstID(at) + fmt.Sprintf("-7000-8000-%012x", i), At: at.Local(), Tenant: []runtime.TenantID{"", "a"}[i%2], Actor: fmt.Sprint("actor", i%3),
			Action: []string{"claimRunner", "signIn"}[i/10%2], Object: []string{"", "r1", "r2"}[i%3], Failed: i%7 == 4, Value: fmt.Append(nil, i),
		})
	}
	return rows
}

func appendRows(t *testing.T, s *Store, rows []AuditRow) {
	t.Helper()
	if err := s.AppendAudit(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
}

func TestAuditPages(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	rows := auditRows(20)
	appendRows(t, s, rows[:1])
	appendRows(t, s, rows[1:2])
	appendRows(t, s, nil)
	appendRows(t, s, rows)
	tenant, other := runtime.TenantID("a"), runtime.DefaultTenant
	for _, test := range []struct {
		name   string
		filter AuditFilter
		first  int
		after  int // -1 means none
		most   int
		want   string
		more   bool
	}{
		{"all", AuditFilter{}, 100, -1, 100, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19", false},
		{"the first", AuditFilter{}, 3, -1, 100, "0 1 2", true},
		{"after an entry", AuditFilter{}, 3, 2, 100, "3 4 5", true},
		{"the last", AuditFilter{}, 3, 16, 100, "17 18 19", false},
		{"newest first", AuditFilter{NewestFirst: true}, 3, -1, 100, "19 18 17", true},
		{"newest first, after an entry", AuditFilter{NewestFirst: true}, 3, 2, 100, "1 0", false},
		{"tenant", AuditFilter{Tenant: &tenant}, 4, -1, 100, "1 3 5 7", true},
		{"default tenant", AuditFilter{Tenant: &other, NewestFirst: true}, 2, -1, 100, "18 16", true},
		{"actor", AuditFilter{Actor: "actor1"}, 100, -1, 100, "1 4 7 10 13 16 19", false},
		{"action", AuditFilter{Action: "signIn", NewestFirst: true}, 100, 12, 100, "11 10", false},
		{"object", AuditFilter{Object: "r2"}, 100, 5, 100, "8 11 14 17", false},
		{"failed", AuditFilter{Failed: new(true)}, 2, -1, 100, "4 11", true},
		{"not failed", AuditFilter{Failed: new(false), NewestFirst: true}, 3, -1, 100, "19 17 16", true},
		{"from a time", AuditFilter{From: rows[17].At}, 100, -1, 100, "17 18 19", false},
		{"until a time", AuditFilter{To: rows[2].At}, 100, -1, 100, "0 1", false},
		{"all filters", AuditFilter{Tenant: &tenant, Actor: "actor1", Object: "r1", Action: "claimRunner", Failed: new(false), From: rows[1].At, To: rows[7].At, NewestFirst: true}, 100, -1, 100, "1", false},
		{"actor without entries", AuditFilter{Actor: "\x00"}, 100, -1, 100, "", false},
		{"bytes of two entries", AuditFilter{}, 100, -1, 2, "0 1", true},
	} {
		after := ""
		if test.after >= 0 {
			after = rows[test.after].ID
		}
		s.pageBytes = test.most
		page, more, err := s.Audit(t.Context(), test.filter, test.first, after)
		var got []string
		for _, r := range page {
			got = append(got, string(r.Value))
		}
		if text := strings.Join(got, " "); err != nil || text != test.want || more != test.more {
			t.Errorf("%s: %s, more %t, %v", test.name, text, more, err)
		}
	}
	s.pageBytes = 0
	if page, more, err := s.Audit(t.Context(), AuditFilter{}, 9, ""); err != nil || len(page) != 1 || !more {
		t.Errorf("a row that is larger than a page: %d, more %t, %v", len(page), more, err)
	}
	s.pageBytes = PageBytes
	page, _, err := s.Audit(t.Context(), AuditFilter{}, 1, rows[6].ID)
	if err != nil || len(page) != 1 || cmp.Diff(rows[7], page[0]) != "" {
		t.Error(err, cmp.Diff(rows[7:8], page))
	}
}

func TestAuditRowsNeverChange(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	rows := auditRows(1)
	appendRows(t, s, rows)
	other := rows[0]
	other.Value = []byte("other")
	appendRows(t, s, []AuditRow{other})
	if err := change(t, s, "UPDATE audit SET value = $1", []byte("other")); err == nil || !strings.Contains(err.Error(), "never change") {
		t.Errorf("an update: got %v, want a refusal", err)
	}
	if page, _, err := s.Audit(t.Context(), AuditFilter{}, 9, ""); err != nil || len(page) != 1 || string(page[0].Value) != "0" {
		t.Error(page, err)
	}
}

func TestAuditIsDeletedInPieces(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	rows := auditRows(MostAuditRows)
	appendRows(t, s, rows)
	var deleted []int
	for range 4 {
		n, err := s.DeleteAudit(t.Context(), rows[100].At, 40)
		if err != nil {
			t.Fatal(err)
		}
		deleted = append(deleted, n)
	}
	if fmt.Sprint(deleted) != "[40 40 20 0]" {
		t.Error(deleted)
	}
	page, more, err := s.Audit(t.Context(), AuditFilter{}, 1, "")
	if err != nil || !more || len(page) != 1 || page[0].ID != rows[100].ID {
		t.Error(page, more, err)
	}
}

// TestIDsBeginWithTheirTime checks an assumption of firstID.
func TestIDsBeginWithTheirTime(t *testing.T) {
	before := time.Now()
	id := uuid.Must(uuid.NewV7()).String()
	if id < firstID(before) || id >= firstID(time.Now().Add(time.Millisecond)) {
		t.Errorf("%s isn't between %s and a millisecond later", id, firstID(before))
	}
	if got := firstID(time.Unix(-1, 0)); got != "00000000-0000" {
		t.Error(got)
	}
	if got := firstID(time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC)); got != "ffffffff-ffff" {
		t.Error(got)
	}
}

// leavingContext is a caller's context that ends once the caller waits for its queued write.
type leavingContext struct {
	context.Context
	leave func()
	asked int
}

func (l *leavingContext) Done() <-chan struct{} {
	if l.asked++; l.asked == 2 {
		l.leave()
	}
	return l.Context.Done()
}

// TestRepeatableWritesReturnWhenTheContextEnds uses a stalled database. Afterwards the rows are
// stored once.
func TestRepeatableWritesReturnWhenTheContextEnds(t *testing.T) {
	for name, write := range map[string]func(s *Store, ctx context.Context, rows []AuditRow) error{
		"append": func(s *Store, ctx context.Context, rows []AuditRow) error { return s.AppendAudit(ctx, rows) },
		"delete": func(s *Store, ctx context.Context, _ []AuditRow) error {
			_, err := s.DeleteAudit(ctx, time.Unix(0, 0), 1)
			return err
		},
		"use tokens": func(s *Store, ctx context.Context, _ []AuditRow) error {
			return s.UseTokens(ctx, map[string]time.Time{"x": time.Unix(0, 0)})
		},
	} {
		path := filepath.Join(t.TempDir(), "db")
		s := open(t, path)
		unlock := locked(t, path)
		rows := auditRows(1)
		left := errors.New("the caller left")
		ctx, leave := context.WithCancelCause(t.Context())
		written := make(chan error, 1)
		go func() { written <- write(s, &leavingContext{ctx, func() { leave(left) }, 0}, rows) }()
		if err := wait.Receive(t, written, "the end of "+name); !errors.Is(err, left) {
			t.Error(name, err)
		}
		unlock()
		if err := s.AppendAudit(t.Context(), rows); err != nil {
			t.Error(err)
		}
		if page, _, err := s.Audit(t.Context(), AuditFilter{}, 9, ""); err != nil || len(page) != 1 {
			t.Error(name, page, err)
		}
	}
}
