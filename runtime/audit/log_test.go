package audit

import (
	"context"
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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A memory is a store in memory. Each call waits for the gate, if there is one.
type memory struct {
	gate chan error // nil: no call waits

	mu      sync.Mutex
	rows    []store.AuditRow
	largest int   // batch
	deletes []int // rows that each call deleted
}

func (m *memory) pass() error {
	if m.gate == nil {
		return nil
	}
	return <-m.gate
}

func (m *memory) AppendAudit(_ context.Context, rows []store.AuditRow) error {
	if err := m.pass(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows, m.largest = append(m.rows, rows...), max(m.largest, len(rows))
	return nil
}

func (m *memory) Audit(context.Context, store.AuditFilter, int, string, func(int) error) ([]store.AuditRow, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.rows), false, nil
}

func (m *memory) DeleteAudit(_ context.Context, before time.Time, most int) (int, error) {
	if err := m.pass(); err != nil {
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

// start runs a log. Stop ends it, and returns what Run does.
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

func free(int) error { return nil }

var full = Entry{
	Tenant: "a", Actor: Actor{Token, "0199c1f2-0000-7000-8000-000000000001", "CI of <team> \"a\""}, Role: "CLIENT", Action: "claimRunner",
	ObjectKind: "RUNNER", ObjectID: "0199c1f2-0000-7000-8000-000000000002", Address: netip.MustParseAddr("192.0.2.1"), Outcome: OutcomeOf(nil),
	Detail: []Detail{
		Word("right", runtime.OutcomeExited), Ref("environment", runtime.EnvironmentID("python-3.12")), Number("count", -3),
		Time("expiresAt", time.Unix(0, 5).In(time.FixedZone("", 3600))), TenantRef("tenant", ""),
	},
}

// TestEntriesComeBack from the database, and as lines.
func TestEntriesComeBack(t *testing.T) {
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
	l.Append(Entry{Action: "signIn", Actor: Actor{Kind: Anonymous}, Outcome: OutcomeOf(runtime.Errorf(runtime.CodeUnauthenticated, "secret"))})
	page, err := l.Entries(t.Context(), Filter{From: before, To: time.Now().Add(time.Second)}, 9, "", free)
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{full, {Action: "signIn", Actor: Actor{Kind: Anonymous}, Outcome: "UNAUTHENTICATED"}}
	want[0].Detail = []Detail{{"count", "-3"}, {"environment", "python-3.12"}, {"expiresAt", "1970-01-01T00:00:00Z"}, {"right", "EXITED"}, {"tenant", "default"}}
	same := cmp.Options{cmpopts.IgnoreFields(Entry{}, "ID", "At"), cmp.AllowUnexported(Detail{}), cmpopts.EquateComparable(netip.Addr{})}
	if diff := cmp.Diff(Page{Entries: want}, page, same); diff != "" {
		t.Fatal(diff)
	}
	for i, e := range page.Entries {
		if e.At.Before(before) || e.At.After(time.Now()) || e.At.Location() != time.UTC || i > 0 && e.ID <= page.Entries[0].ID {
			t.Errorf("%+v", e)
		}
	}
	for name, q := range map[string]Filter{
		"actor": {Actor: full.Actor.ID}, "action": {Action: "claimRunner"}, "object": {Object: full.ObjectID}, "tenant": {Tenant: &full.Tenant}, "all": {To: page.Entries[1].At.Add(-time.Hour)},
	} {
		if page, err := l.Entries(t.Context(), q, 9, "", free); err != nil || len(page.Entries) != map[bool]int{true: 0, false: 1}[name == "all"] {
			t.Error(name, page, err)
		}
	}
	if page, err := l.Entries(t.Context(), Filter{Actor: "ANONYMOUS"}, 9, "", free); err != nil || len(page.Entries) != 1 {
		t.Error(page, err)
	}
	digest := "0123456789abcdef0123456789abcdef"
	l.Append(Entry{Action: "a", ObjectID: digest})
	if page, err := l.Entries(t.Context(), Filter{Object: digest}, 9, "", free); err != nil || len(page.Entries) != 1 || page.Entries[0].ObjectID == digest {
		t.Error("an id that looks like a secret:", page, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "lines"))
	first, second := page.Entries[0], page.Entries[1]
	wantText := fmt.Sprintf(`{"id":%q,"at":%q,"tenant":"a","actor":{"kind":"TOKEN","id":"0199c1f2-0000-7000-8000-000000000001","name":"CI of \u003cteam\u003e \"a\""},"role":"CLIENT",`+
		`"action":"claimRunner","object":{"kind":"RUNNER","id":"0199c1f2-0000-7000-8000-000000000002"},"address":"192.0.2.1","outcome":"OK",`+
		`"detail":{"count":"-3","environment":"python-3.12","expiresAt":"1970-01-01T00:00:00Z","right":"EXITED","tenant":"default"}}
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
	page, err := l.Entries(t.Context(), Filter{}, 1, "", free)
	want := Entry{ID: "id", At: at, Tenant: "a", Actor: Actor{Unknown, "b", ""}, Action: "c", ObjectID: "d", Outcome: Unreadable}
	if diff := cmp.Diff([]Entry{want}, page.Entries, cmp.AllowUnexported(Detail{}), cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestAppendWaitsOnlyForRoom: not for the store. Nothing is dropped when the queue is full, or when the log ends.
func TestAppendWaitsOnlyForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{gate: make(chan error)}
		l := newLog(t, Config{Store: m})
		stop := start(t, l)
		total := 0
		add := func() <-chan struct{} {
			done := make(chan struct{})
			total++
			entry := Entry{Action: "a", ObjectID: fmt.Sprint(total)}
			go func() {
				l.Append(entry)
				close(done)
			}()
			synctest.Wait()
			return done
		}
		fill := func() {
			for ; len(l.queue) < mostWaiting; total++ {
				l.Append(Entry{Action: "a"})
			}
		}
		waits := func(appended <-chan struct{}) bool {
			select {
			case <-appended:
				return false
			default:
				return true
			}
		}
		fill()
		one := add()
		if !waits(one) {
			t.Error("the queue is full, and takes another")
		}
		m.gate <- nil
		synctest.Wait()
		if waits(one) {
			t.Error("there is room, and it waits")
		}
		fill()
		if one = add(); !waits(one) {
			t.Error("the queue is full again, and takes another")
		}
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		synctest.Wait()
		close(m.gate)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		<-one
		rows := m.stored()
		if len(rows) != total || rows[total-1].Object != fmt.Sprint(total) || m.largest != store.MostAuditRows {
			t.Errorf("%d are stored instead of %d, %d at most at once", len(rows), total, m.largest)
		}
		if !slices.IsSortedFunc(rows, func(a, b store.AuditRow) int { return strings.Compare(a.ID, b.ID) }) {
			t.Error("ids aren't in order")
		}
		l.Append(Entry{Action: "a"})
		if err := l.Flush(t.Context()); err != nil || len(m.stored()) != total {
			t.Error("after the end:", err)
		}
	})
}

// TestStopStoresAll that was appended before, by many at once, who go on while it stops.
func TestStopStoresAll(t *testing.T) {
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

// TestStoreThatFails: entries wait, in order, and Failing is called when it changes.
func TestStoreThatFails(t *testing.T) {
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
			t.Error(err)
		}
		go func() {
			page, err := l.Entries(t.Context(), Filter{}, 9, "", free)
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
			t.Error(err)
		}
		m.gate <- nil
		if err := l.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		l.Append(Entry{Action: "c"})
		synctest.Wait()
		m.gate <- away
		synctest.Wait()
		go func() { m.gate <- away }() // a stop tries once more
		if err := stop(); !errors.Is(err, away) || !strings.Contains(err.Error(), "1 entries of the audit log are lost") {
			t.Error(err)
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

func TestIDsFollowTheTime(t *testing.T) {
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
