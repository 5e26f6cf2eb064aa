package clients

import (
	"context"
	"errors"
	"math"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A network that one machine can have entirely is one peer.
func TestPeersAreAddressesAndNetworks(t *testing.T) {
	for _, test := range []struct {
		a, b net.Addr
		same bool
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2}, true},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, &net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1").To16()}, true},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2)}, false},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1")}, &net.TCPAddr{IP: net.ParseIP("2001:db8::ffff:1:2:3")}, true},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1")}, &net.TCPAddr{IP: net.ParseIP("2001:db8:0:1::1")}, false},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "a"}, &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "b"}, true},
		{&net.UnixAddr{Name: "a"}, &net.UnixAddr{Name: ""}, true},
		{&net.UnixAddr{}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, false},
	} {
		if same := identity(addressOf(test.a)) == identity(addressOf(test.b)); same != test.same {
			t.Errorf("%s and %s: %v, want %v", test.a, test.b, same, test.same)
		}
	}
}

// Goroutines take and give concurrently, and the budget's limit always holds.
func TestBudgetsAreNeverExceeded(t *testing.T) {
	b := budget{limit: 10}
	var all sync.WaitGroup
	for n := range int64(8) {
		all.Go(func() {
			for range 10_000 {
				if b.acquire(n) {
					if used := b.used.Load(); used > b.limit || used < 0 {
						t.Errorf("%d are taken", used)
					}
					release(n, &b)
				}
			}
		})
	}
	all.Wait()
	if b.used.Load() != 0 || !b.acquire(10) || b.acquire(1) {
		t.Errorf("%d are taken", b.used.Load())
	}
}

// Waiting bodies don't wait for a peer, and stop waiting when they are cancelled.
func TestLargeBodiesAreDecodedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Bounds{Bodies: 1 << 20}).Reserve(t.Context(), Credential{})
		var running sync.WaitGroup
		atOnce, most := 0, 0
		for range 3 {
			running.Go(func() {
				_ = h.Turn(t.Context(), DefaultBody, func() error {
					atOnce++
					most = max(most, atOnce)
					time.Sleep(time.Second)
					atOnce--
					return nil
				})
			})
		}
		synctest.Wait()
		if err := h.Turn(t.Context(), largeBody, func() error { return nil }); err != nil {
			t.Error(err) // it is small, and needs no turn
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := h.Turn(ctx, DefaultBody, func() error { return nil }); err == nil {
			t.Error("one that was cancelled got its turn")
		}
		running.Wait()
		if most != 1 {
			t.Errorf("%d were decoded at once, want 1", most)
		}
	})
}

// A grant has separate limits of operations and subscriptions. Its memory counts as the token's.
func TestGrantsHaveSeparateLimits(t *testing.T) {
	p := New(Bounds{TokenOperations: 1, TokenSubscriptions: 1, TokenBodies: 10})
	t.Cleanup(func() { // after all have been released
		if len(p.tokens) > 0 {
			t.Errorf("%d tokens are known", len(p.tokens))
		}
	})
	hold := func(grant string) *Reservation {
		h := p.Reserve(t.Context(), Credential{Token: "t", Grant: grant})
		t.Cleanup(h.Release)
		return &h
	}
	for _, grant := range []string{"", "a", "b"} {
		operation, subscription := hold(grant), hold(grant)
		if err := errors.Join(operation.Operate(), operation.Grow(10), subscription.Subscribe()); err != nil {
			t.Errorf("%q: %v", grant, err)
		}
		operation.ReleaseMemory() // it still counts
		if hold(grant).Operate() == nil || hold(grant).Subscribe() == nil {
			t.Errorf("%q has more than its bound", grant)
		}
	}
	if err := hold("a").Grow(10); err != nil {
		t.Error(err)
	}
	if hold("b").Grow(1) == nil || hold("").Grow(1) == nil {
		t.Error("grants of one token have more memory than the token")
	}
	other := p.Reserve(t.Context(), Credential{Token: "other"})
	t.Cleanup(other.Release)
	if err := other.Grow(10); err != nil {
		t.Error(err)
	}
}

// All grants of one token together have 16 times the limits of one caller. The grants of other
// tokens, and the token itself, keep theirs.
func TestGrantsOfATokenShareALimit(t *testing.T) {
	p := New(Bounds{TokenOperations: 2, TokenSubscriptions: 1})
	for _, count := range []struct {
		most    int
		take    func(*Reservation) error
		refused Bound
	}{{32, (*Reservation).Operate, GrantOperations}, {16, (*Reservation).Subscribe, GrantSubscriptions}} {
		var holds []*Reservation
		take := func(token, grant string) error {
			h := p.Reserve(t.Context(), Credential{Token: token, Grant: grant})
			holds = append(holds, &h)
			return count.take(&h)
		}
		for i := range count.most {
			if err := take("t", strconv.Itoa(i)); err != nil {
				t.Fatalf("%s: grant %d: %v", count.refused, i, err)
			}
		}
		if err := take("t", "one more"); err == nil || err.Error() != refusals[count.refused] {
			t.Errorf("%s: one more grant got %v", count.refused, err)
		}
		if err := errors.Join(take("t", ""), take("other", "0")); err != nil {
			t.Errorf("%s: %v", count.refused, err)
		}
		holds[0].Release()
		if err := take("t", "one more"); err != nil {
			t.Errorf("%s: after one ended: %v", count.refused, err)
		}
		for _, h := range holds {
			h.Release()
		}
		if u := p.Usage(); u.Refused[count.refused] != 1 || u.Operations+u.Subscriptions != 0 || len(p.tokens) != 0 {
			t.Errorf("%s: %+v, and %d tokens are known", count.refused, u, len(p.tokens))
		}
	}
}

// Room returns what Grow accepts for each limit, whatever others hold.
func TestRoomIsWhatGrowAccepts(t *testing.T) {
	for _, test := range []struct {
		all, ofToken, ofPeer int64
		token                string
		room                 int64
	}{
		{30, 20, 10, "t", 10}, {30, 10, 20, "t", 10}, {10, 20, 30, "t", 10}, {30, 10, 20, "", 20}, {30, 20, 0, "t", 20}, {0, 0, 0, "t", math.MaxInt64},
	} {
		p := New(Bounds{Bodies: test.all, TokenBodies: test.ofToken})
		peer := &caller{bodies: budget{limit: test.ofPeer}}
		hold := func() *Reservation {
			h := p.Reserve(context.WithValue(t.Context(), clientKey{}, client{peer: peer}), Credential{Token: test.token})
			t.Cleanup(h.Release)
			return &h
		}
		other, h := hold(), hold()
		if err := errors.Join(other.Grow(1), h.Grow(2)); err != nil {
			t.Fatal(err)
		}
		if test.room < math.MaxInt64 {
			test.room -= 2
		}
		room := h.Room()
		other.ReleaseMemory()
		if room != test.room || room < math.MaxInt64 && (h.Grow(room+1) == nil || h.Grow(room) != nil) {
			t.Errorf("%+v: %d", test, room)
		}
	}
	if room := new(Reservation).Room(); room != math.MaxInt64 {
		t.Error(room)
	}
}
