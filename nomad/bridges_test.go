package nomad

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// newSessions returns bridges whose sessions carry nothing, and take a second to open.
func newSessions(t *testing.T, budget int, fail error) *bridgeSet {
	var g connection.Group
	t.Cleanup(func() {
		g.End(errors.New("over"))
		g.Wait()
	})
	return newBridgeSet(budget, func(ctx context.Context, _ runtime.RunnerID) (bridgeSession, error) {
		if err := backoff.Sleep(ctx, time.Second); err != nil || fail != nil {
			return nil, errors.Join(err, fail)
		}
		done := make(chan struct{})
		return fakeSession{done, sync.OnceFunc(func() { close(done) })}, nil
	}, &g)
}

type fakeSession struct {
	done chan struct{}
	end  func()
}

func (s fakeSession) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	return ours, theirs.Close()
}
func (s fakeSession) Done() <-chan struct{} { return s.done }
func (s fakeSession) Close() error {
	s.end()
	return nil
}

func (b *bridgeSet) who() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := ""
	for _, id := range slices.Sorted(maps.Keys(b.all)) {
		text += string(id)
	}
	return text
}

// A set counts its bridges and streams.
func TestBridgesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessions(t, 1, nil)
		conn, err := b.Dial(t.Context(), "a", true)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error)
		go func() { waiting <- b.Keep(t.Context(), "b", true) }()
		synctest.Wait()
		if s, want := b.Stats(), (BridgeStats{Budget: 1, Open: 1, Waiting: 1, Opens: 1, OpenStreams: 1, Streams: 1}); s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
		_, _ = conn.Close(), conn.Close()
		if err := <-waiting; err != nil {
			t.Fatal(err)
		}
		if s, want := b.Stats(), (BridgeStats{Budget: 1, Open: 1, Opens: 2, Streams: 1}); s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
		broken := newSessions(t, 1, errors.New("broken"))
		if broken.Keep(t.Context(), "a", false) == nil {
			t.Error("Keep succeeds though no bridge can be opened")
		}
		synctest.Wait()
		if s, want := broken.Stats(), (BridgeStats{Budget: 1, Failures: 1}); s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
	})
}

func TestBridgesKeepWithinTheirBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessions(t, 3, nil)
		ctx := t.Context()
		keep := func(id runtime.RunnerID, claimed bool, want string) {
			t.Helper()
			time.Sleep(time.Second)
			if err := b.Keep(ctx, id, claimed); err != nil {
				t.Fatal(err)
			}
			if got := b.who(); got != want {
				t.Errorf("after %s: %q, want %q", id, got, want)
			}
		}
		keep("a", false, "a")
		keep("b", true, "ab")
		keep("c", false, "abc")
		keep("a", false, "abc") // used again
		keep("d", false, "abd") // the longest unused idle one goes
		keep("e", true, "bde")
		keep("f", true, "bef") // the last idle one
		keep("g", true, "efg") // of claimed ones the longest unused

		// A bridge with a stream stays, and callers that need one wait.
		var conns []net.Conn
		for _, id := range []runtime.RunnerID{"e", "f", "g"} {
			conn, err := b.Dial(ctx, id, true)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := b.Keep(short, "h", true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one too many: got %v, want %v", err, context.DeadlineExceeded)
		}
		go func() {
			time.Sleep(time.Minute)
			_ = conns[1].Close()
			_ = conns[1].Close() // counts once
		}()
		keep("h", true, "egh")
		// An idle runner's bridge never replaces a claimed one's.
		short, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := b.Keep(short, "i", false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an idle one in place of a claimed one: got %v, want %v", err, context.DeadlineExceeded)
		}
		b.Drop("g")
		keep("i", false, "ehi")
		synctest.Wait()
	})
}

func TestBrokenBridgesAreReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessions(t, 2, nil)
		for range 3 {
			conn, err := b.Dial(t.Context(), "a", true)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			b.mu.Lock()
			s := b.all["a"].session
			b.mu.Unlock()
			_ = s.Close()
		}
		failing := newSessions(t, 2, errors.New("no"))
		for range 5 { // each failure gives its slot back
			if _, err := failing.Dial(t.Context(), "a", true); err == nil {
				t.Fatal("Dial succeeds though no bridge can be opened")
			}
			synctest.Wait()
		}
		if got := failing.who(); got != "" {
			t.Errorf("left: got %q, want \"\"", got)
		}
	})
}

// A call with low priority uses an open bridge, or opens one within a quarter of the budget.
// Otherwise it neither waits nor closes another bridge.
func TestSpareDialsUseNoScarceBridges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessions(t, 4, nil)
		spare := func(id runtime.RunnerID, want error, open string) {
			t.Helper()
			began := time.Now()
			conn, err := b.Dial(runtime.Spare(t.Context()), id, true)
			if !errors.Is(err, want) || want != nil && time.Since(began) != 0 {
				t.Errorf("%s after %v: %v, want %v", id, time.Since(began), err, want)
			}
			if err == nil {
				_ = conn.Close()
			}
			if got := b.who(); got != open {
				t.Errorf("after %s %q are open, want %q", id, got, open)
			}
		}
		spare("a", nil, "a")
		spare("b", errNoSpareBridge, "a")
		for _, id := range []runtime.RunnerID{"b", "c", "d"} {
			time.Sleep(time.Second)
			if err := b.Keep(t.Context(), id, true); err != nil {
				t.Fatal(err)
			}
		}
		spare("e", errNoSpareBridge, "abcd")
		spare("a", nil, "abcd") // which isn't used by it
		if err := b.Keep(t.Context(), "e", true); err != nil {
			t.Fatal(err)
		}
		if got := b.who(); got != "bcde" {
			t.Errorf("%q are open, want \"bcde\"", got)
		}
	})
}
