package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/timing"
	steps "github.com/rockpool/rockpool/test/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A memory is a store in memory. Each call waits for the gate, if there is one.
type memory struct {
	gate chan error // nil means no call waits

	mu      sync.Mutex
	rows    []store.AuditRow
	largest int   // batch
	deletes []int // rows that each call deleted
}

func (m *memory) pass(ctx context.Context) error {
	if m.gate == nil {
		return nil
	}
	select {
	case err := <-m.gate:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *memory) AppendAudit(ctx context.Context, rows []store.AuditRow) error {
	if err := m.pass(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows, m.largest = append(m.rows, rows...), max(m.largest, len(rows))
	return nil
}

func (m *memory) Audit(context.Context, store.AuditFilter, int, string) ([]store.AuditRow, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.rows), false, nil
}

func (m *memory) DeleteAudit(ctx context.Context, before time.Time, most int) (int, error) {
	if err := m.pass(ctx); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	m.rows = slices.DeleteFunc(m.rows, func(r store.AuditRow) bool {
		old := n < most && r.At.Before(before)
		if old {
			n++
		}
		return old
	})
	m.deletes = append(m.deletes, n)
	return n, nil
}

func (m *memory) stored() []store.AuditRow {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.rows)
}

func newLog(t *testing.T, c Config) *Log {
	t.Helper()
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start runs a log. stop ends it, and returns Run's error.
func start(t *testing.T, l *Log) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

var full = Entry{
	Tenant: "a", Actor: Actor{Token, "0199c1f2-0000-7000-8000-000000000001", "CI of <team> \"a\""}, Role: "CLIENT", Action: "claimRunner",
	ObjectKind: "RUNNER", ObjectID: "0199c1f2-0000-7000-8000-000000000002", Address: netip.MustParseAddr("192.0.2.1"), Outcome: OK,
	Detail: []Detail{
		Words("rights", []runtime.Outcome{runtime.OutcomeExited, "a b"}), Ref("execution", runtime.ExecutionID("python-3.12")),
		Time("expiresAt", time.Unix(0, 5).In(time.FixedZone("", 3600))), Time("never", time.Time{}), Ref("runner", runtime.RunnerID("")),
	},
}

// TestEntriesAreRestored reads entries from the database and from the copy.
func TestEntriesAreRestored(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := newLog(t, Config{Store: s, Lines: filepath.Join(dir, "lines"), Failing: func(err error) { t.Error(err) }})
	stop := start(t, l)
	before := time.Now().Truncate(time.Millisecond)
	l.Append(full)
	l.Append(Entry{Action: "signIn", Actor: Actor{Kind: Anonymous}, Outcome: OutcomeOf(t.Context(), runtime.Errorf(runtime.CodeUnauthenticated, "secret"))})
	if err := l.Flush(t.Context()); err != nil { // for which Entries waits no longer than two seconds
		t.Fatal(err)
	}
	page, err := l.Entries(t.Context(), Filter{From: before, To: time.Now().Add(time.Second)}, 9, "")
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{full, {Action: "signIn", Actor: Actor{Kind: Anonymous}, Outcome: "UNAUTHENTICATED"}}
	want[0].Detail = []Detail{{"execution", "python-3.12"}, {"expiresAt", "1970-01-01T00:00:00Z"}, {"rights", "EXITED (malformed)"}}
	same := cmp.Options{cmpopts.IgnoreFields(Page{}, "Sizes"), cmpopts.IgnoreFields(Entry{}, "ID", "At"), cmp.AllowUnexported(Detail{}), cmpopts.EquateComparable(netip.Addr{})}
	if diff := cmp.Diff(Page{Entries: want}, page, same); diff != "" {
		t.Fatal(diff)
	}
	if len(page.Sizes) != len(want) || page.Sizes[0] <= page.Sizes[1] {
		t.Errorf("sizes: got %d, want that of each entry", page.Sizes)
	}
	for i, e := range page.Entries {
		if e.At.Before(before) || e.At.After(time.Now()) || e.At.Location() != time.UTC || i > 0 && e.ID <= page.Entries[0].ID {
			t.Errorf("%+v", e)
		}
	}
	for name, q := range map[string]Filter{
		"actor": {Actor: full.Actor.ID}, "action": {Action: "claimRunner"}, "object": {Object: full.ObjectID}, "tenant": {Tenant: &full.Tenant}, "all": {To: page.Entries[1].At.Add(-time.Hour)},
	} {
		if page, err := l.Entries(t.Context(), q, 9, ""); err != nil || len(page.Entries) != map[bool]int{true: 0, false: 1}[name == "all"] {
			t.Error(name, page, err)
		}
	}
	if page, err := l.Entries(t.Context(), Filter{Actor: "ANONYMOUS"}, 9, ""); err != nil || len(page.Entries) != 1 {
		t.Error(page, err)
	}
	digest := "0123456789abcdef0123456789abcdef"
	l.Append(Entry{Action: "a", ObjectID: digest})
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if page, err := l.Entries(t.Context(), Filter{Object: digest}, 9, ""); err != nil || len(page.Entries) != 1 || page.Entries[0].ObjectID == digest {
		t.Error("an id that looks like a secret:", page, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "lines"))
	first, second := page.Entries[0], page.Entries[1]
	wantText := fmt.Sprintf(`{"id":%q,"at":%q,"tenant":"a","actor":{"kind":"TOKEN","id":"0199c1f2-0000-7000-8000-000000000001","name":"CI of \u003cteam\u003e \"a\""},"role":"CLIENT",`+
		`"action":"claimRunner","object":{"kind":"RUNNER","id":"0199c1f2-0000-7000-8000-000000000002"},"address":"192.0.2.1","outcome":"OK",`+
		`"detail":{"execution":"python-3.12","expiresAt":"1970-01-01T00:00:00Z","rights":"EXITED (malformed)"}}
{"id":%q,"at":%q,"tenant":"default","actor":{"kind":"ANONYMOUS"},"action":"signIn","outcome":"UNAUTHENTICATED"}
`, first.ID, first.At.Format(time.RFC3339Nano), second.ID, second.At.Format(time.RFC3339Nano))
	if err != nil || !strings.HasPrefix(string(text), wantText) {
		t.Errorf("%v\n%s\n%s", err, text, wantText)
	}
}

func TestDamagedEntriesAreShown(t *testing.T) {
	at := time.Unix(5, 0)
	m := &memory{rows: []store.AuditRow{{ID: "id", At: at, Tenant: "a", Actor: "b", Action: "c", Object: "d", Value: []byte("{")}}}
	l := newLog(t, Config{Store: m})
	start(t, l)
	page, err := l.Entries(t.Context(), Filter{}, 1, "")
	want := Entry{ID: "id", At: at, Tenant: "a", Actor: Actor{Unknown, "b", ""}, Action: "c", ObjectID: "d", Outcome: Unreadable}
	if diff := cmp.Diff([]Entry{want}, page.Entries, cmp.AllowUnexported(Detail{}), cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestFullLogRefusesOperations also checks that Append never blocks and drops nothing, so that
// operations in progress are recorded.
func TestFullLogRefusesOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{gate: make(chan error)}
		l := newLog(t, Config{Store: m})
		stop := start(t, l)
		total := 0
		add := func() {
			total++
			l.Append(Entry{Action: "a", ObjectID: fmt.Sprint(total)})
		}
		for total < mostWaiting {
			if err := l.Room(WholeServer); err != nil {
				t.Fatalf("%d entries wait: %v", total, err)
			}
			add()
		}
		add()
		if err := l.Room(WholeServer); !errors.Is(err, ErrFull) || runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
			t.Error("the queue is full:", err)
		}
		synctest.Wait()
		m.gate <- nil // the first attempt may have begun with one entry
		synctest.Wait()
		m.gate <- nil
		synctest.Wait()
		if err := l.Room(WholeServer); err != nil {
			t.Error("there is room:", err)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		synctest.Wait()
		close(m.gate)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		rows := m.stored()
		if len(rows) != total || rows[total-1].Object != fmt.Sprint(total) || m.largest != store.MostAuditRows {
			t.Errorf("%d are stored instead of %d, %d at most at once", len(rows), total, m.largest)
		}
		if !slices.IsSortedFunc(rows, func(a, b store.AuditRow) int { return strings.Compare(a.ID, b.ID) }) {
			t.Error("ids aren't in order")
		}
		if err := l.Room(WholeServer); !errors.Is(err, ErrEnded) {
			t.Errorf("after the end: got %v, want %v", err, ErrEnded)
		}
	})
}

// TestFullShareRefusesOneTenant checks that other tenants aren't refused, and that storing entries
// makes room.
func TestFullShareRefusesOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{gate: make(chan error)}
		l := newLog(t, Config{Store: m})
		stop := start(t, l)
		total := 0
		for ; total < mostWaiting && l.Room("greedy") == nil; total++ {
			l.Append(Entry{Tenant: "greedy", Action: "a"})
		}
		if total != mostWaiting/2 {
			t.Errorf("one tenant had %d entries", total)
		}
		for _, other := range []runtime.TenantID{"a", "b", runtime.DefaultTenant, WholeServer} {
			if err := l.Room(other); err != nil {
				t.Errorf("%s: %v", other, err)
			}
		}
		synctest.Wait()
		m.gate <- nil
		synctest.Wait()
		if err := l.Room("greedy"); err != nil {
			t.Error("there is room again:", err)
		}
		for range mostWaiting {
			l.Append(Entry{Tenant: WholeServer, Action: "a"})
		}
		if err := l.Room(WholeServer); !errors.Is(err, ErrFull) {
			t.Errorf("the queue is full: got %v, want %v", err, ErrFull)
		}
		if err := l.Room("a"); err != nil {
			t.Error("a tenant's first one:", err)
		}
		close(m.gate)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestRefusalsOfOneCallerAreBounded checks the limit, since a caller can cause any number of refusals.
func TestRefusalsOfOneCallerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t, Config{})
		count := func(caller string) (n int) {
			for range 10 * refusalsBurst {
				if l.Refusal(caller) {
					n++
				}
			}
			return n
		}
		if n := count("1"); n != refusalsBurst {
			t.Error(n, "are recorded")
		}
		if n := count("2"); n != refusalsBurst {
			t.Error(n, "of another caller are recorded")
		}
		time.Sleep(time.Second)
		if n := count("1"); n != refusalsPerSecond {
			t.Error(n, "are recorded a second later")
		}
	})
}

// TestStalledStore uses a store that neither stores nor fails.
func TestStalledStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lines")
		m := &memory{gate: make(chan error)}
		var said []string
		var unstored []string
		l := newLog(t, Config{
			Store: m, Lines: path, Failing: func(err error) { said = append(said, fmt.Sprint(err)) },
			Unstored: func(entries []json.RawMessage) {
				for _, e := range entries {
					unstored = append(unstored, string(e))
				}
			},
		})
		stop := start(t, l)
		if err := l.Problem(); err != nil {
			t.Error("nothing is wrong yet:", err)
		}
		first := time.Now()
		l.Append(Entry{Action: "a"})
		began := time.Now()
		if page, err := l.Entries(t.Context(), Filter{}, 9, ""); err != nil || page.Waiting != 1 || time.Since(began) != flushWithin {
			t.Errorf("a query returned %+v and %v after %v", page, err, time.Since(began))
		}
		other := runtime.TenantID("other")
		if page, err := l.Entries(t.Context(), Filter{Tenant: &other}, 9, ""); err != nil || page.Waiting != 0 {
			t.Errorf("another tenant's query returned %+v and %v", page, err)
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second/2) // before the attempt fails, 5 s after its beginning
		defer cancel()
		if _, err := l.Entries(gone, Filter{}, 9, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a query whose caller left: got %v, want %v", err, context.DeadlineExceeded)
		}
		time.Sleep(attemptWithin)
		l.Append(Entry{Action: "b"})
		if len(said) != 1 || !strings.Contains(said[0], "5 s") {
			t.Errorf("got %q, want one line about a response within 5 s", said)
		}
		since := first.UTC().Format(time.RFC3339)
		if err := l.Problem(); err == nil || !strings.Contains(err.Error(), "2 entries") || !strings.HasSuffix(err.Error(), since) {
			t.Errorf("got %v, want 2 entries since %s", err, since)
		}
		began = time.Now()
		if err := stop(); err == nil || !strings.Contains(err.Error(), "2 entries") || time.Since(began) > attemptWithin {
			t.Errorf("after %v: got %v, want 2 entries that were not stored within %v", time.Since(began), err, attemptWithin)
		}
		l.Append(Entry{Action: "c"})
		if len(unstored) != 3 || !strings.Contains(unstored[0], `"action":"a"`) || !strings.Contains(unstored[1], `"action":"b"`) || !strings.Contains(unstored[2], `"action":"c"`) {
			t.Error(unstored)
		}
		if got := readFile(t, path); got != unstored[0]+"\n"+unstored[1]+"\n" {
			t.Errorf("the lines are %q", got)
		}
	})
}

// TestStopStoresAllEntries appends concurrently, also while the log stops.
func TestStopStoresAllEntries(t *testing.T) {
	for range 10 {
		m := &memory{}
		l := newLog(t, Config{Store: m})
		stop := start(t, l)
		var group sync.WaitGroup
		before := make(chan struct{}, 8)
		for range cap(before) {
			group.Go(func() {
				for range 20 {
					l.Append(Entry{Action: "a"})
				}
				before <- struct{}{}
				for range 1000 {
					l.Append(Entry{Action: "a"})
				}
			})
		}
		for range cap(before) {
			<-before
		}
		err := stop()
		group.Wait()
		if n := len(m.stored()); err != nil || n < 20*cap(before) || len(l.queue) > 0 {
			t.Fatalf("%d are stored, %d were forgotten: %v", n, len(l.queue), err)
		}
	}
}

// TestFailingStoreIsRetried checks that entries wait in order, and that Failing is called for each
// change.
func TestFailingStoreIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{gate: make(chan error)}
		var said []string
		l := newLog(t, Config{Store: m, Failing: func(err error) { said = append(said, fmt.Sprint(err)) }})
		stop := start(t, l)
		l.Append(Entry{Action: "a"})
		l.Append(Entry{Action: "b"})
		away := errors.New("it is away")
		flushed := make(chan error, 1)
		go func() { flushed <- l.Flush(t.Context()) }()
		synctest.Wait()
		m.gate <- away
		if err := <-flushed; !errors.Is(err, away) {
			t.Errorf("got %v, want %v", err, away)
		}
		go func() {
			page, err := l.Entries(t.Context(), Filter{}, 9, "")
			if page.Waiting != 2 || len(page.Entries) != 0 {
				t.Errorf("%+v", page)
			}
			flushed <- err
		}()
		synctest.Wait()
		m.gate <- away
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		leaving, leave := context.WithCancelCause(t.Context())
		go func() { flushed <- l.Flush(leaving) }()
		synctest.Wait()
		left := errors.New("it left")
		leave(left)
		if err := <-flushed; !errors.Is(err, left) {
			t.Errorf("got %v, want %v", err, left)
		}
		m.gate <- nil
		if err := l.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		l.Append(Entry{Action: "c"})
		synctest.Wait()
		m.gate <- away
		synctest.Wait()
		go func() { m.gate <- away }() // stopping makes one more attempt
		if err := stop(); !errors.Is(err, away) || !strings.Contains(err.Error(), "1 entries") {
			t.Errorf("got %v, want %v and 1 entries", err, away)
		}
		if err := l.Flush(t.Context()); err == nil {
			t.Error("what was lost is stored")
		}
		if diff := cmp.Diff([]string{"store the audit log: it is away", "<nil>", "store the audit log: it is away"}, said); diff != "" {
			t.Error(diff)
		}
		if rows := m.stored(); len(rows) != 2 || rows[0].Action != "a" || rows[1].Action != "b" {
			t.Error(rows)
		}
	})
}

func TestOldEntriesAreDeletedEveryHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		var said []error
		l := newLog(t, Config{Store: m, Keep: 90 * time.Minute, Failing: func(err error) { said = append(said, err) }})
		start(t, l)
		for range 2*shortenPiece + 1 {
			l.Append(Entry{Action: "a"})
		}
		time.Sleep(time.Minute)
		l.Append(Entry{Action: "b"})
		time.Sleep(2*time.Hour - 2*time.Minute)
		if n := len(m.stored()); n != 2*shortenPiece+2 {
			t.Errorf("%d are left before the second hour", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(m.stored()); n != 0 || fmt.Sprint(m.deletes) != "[0 0 500 500 2]" {
			t.Errorf("%d are left; %v", n, m.deletes)
		}
		l.Append(Entry{Action: "c"})
		time.Sleep(88 * time.Minute)
		synctest.Wait()
		if n := len(m.stored()); n != 1 || len(said) != 0 {
			t.Errorf("%d are left; %v", n, said)
		}
	})
}

// TestStepsDeleteNoEntries has a clock that began before the wall clock was stepped.
func TestStepsDeleteNoEntries(t *testing.T) {
	for _, step := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		m := &memory{}
		l := newLog(t, Config{Store: m, Keep: time.Hour})
		l.clock = timing.Clock{Began: steps.Step(time.Now(), -step)}
		start(t, l)
		l.Append(Entry{Action: "a"})
		if err := errors.Join(l.Flush(t.Context()), l.deleteOld(t.Context())); err != nil || len(m.stored()) != 1 {
			t.Errorf("after a step of %v new entries are deleted: %v", step, err)
		}
	}
}

func TestIDsFollowASetBackClock(t *testing.T) {
	var c clock
	start := time.UnixMilli(1_700_000_000_000)
	last := c.id(start)
	for i := range 10_000 { // two of each tick: they run ahead
		id := c.id(start.Add(time.Duration(i) * time.Millisecond / ticks / 2))
		if id <= last || len(id) != 36 || id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
	for _, at := range []time.Duration{time.Hour, -time.Hour, time.Minute} {
		id := c.id(start.Add(at))
		if want := fmt.Sprintf("%012x", start.Add(at).UnixMilli()); id[:8]+id[9:13] != want {
			t.Errorf("%s doesn't begin with %s", id, want)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	l, err := New(Config{Store: &memory{}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	for b.Loop() {
		l.Append(full)
	}
	cancel()
	<-ended
}

func TestOutcomes(t *testing.T) {
	left, leave := context.WithCancelCause(t.Context())
	peerLeft := errors.New("the peer left")
	leave(peerLeft)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	stopping, stop := context.WithCancelCause(t.Context())
	stop(ErrEnded)
	for _, test := range []struct {
		name string
		ctx  context.Context
		err  error
		want Outcome
	}{
		{"nothing", cancelled, nil, "OK"},
		{"an error of the API", cancelled, fmt.Errorf("claim: %w", runtime.Errorf(runtime.CodeConflict, "x")), "CONFLICT"},
		{"another error", t.Context(), errors.New("x"), "INTERNAL"},
		{"another error, and the caller left", cancelled, errors.New("x"), "INTERNAL"},
		{"a part was cancelled, but not by the caller", t.Context(), context.Canceled, "INTERNAL"},
		{"the caller left", cancelled, fmt.Errorf("claim: %w", context.Canceled), "CANCELLED"},
		{"the caller left for a reason", left, fmt.Errorf("claim: %w", peerLeft), "CANCELLED"},
		{"the server stops", stopping, context.Canceled, "CLUSTER_UNAVAILABLE"},
	} {
		got := OutcomeOf(test.ctx, test.err)
		if got != test.want || (Entry{Outcome: got}).clean().Outcome != got {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
