package firewall

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/test/networktest"
)

func testOthers(t *testing.T, w *world) {
	p := policy(0)
	join(t, "a", p)
	rules := made(t, "a", p)
	others := make([]nftables.Table, 60)
	for range 20 {
		for i := range others {
			others[i] = nftables.Table{Family: nftables.TableFamilyNetdev, Name: fmt.Sprintf("other-%d", i)}
			w.conn.AddTable(&others[i])
			for j := range 20 {
				w.conn.AddChain(&nftables.Chain{Table: &others[i], Name: fmt.Sprintf("chain%d", j)})
			}
			if err := w.conn.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := rules.install(w.conn); err != nil { // installed after the others' tables
			t.Fatal(err)
		}
		gone := make(chan error)
		go func() {
			mine, err := nftables.New()
			for i := 0; err == nil && i < len(others); i++ {
				mine.DelTable(&others[i])
				if i%20 == 19 {
					err = mine.Flush()
				}
			}
			gone <- err
		}()
		for ended := false; !ended; {
			if err := rules.verifyOnce(w.conn); err != nil {
				t.Error(err)
			}
			select {
			case err := <-gone:
				if ended = true; err != nil {
					t.Fatal(err)
				}
			default:
			}
		}
	}
}

func testBandwidth(t *testing.T, _ *world) {
	p := policy(1)
	p.Request.Bandwidth = 40 // 5 MB/s
	capped := join(t, "b", p)
	for _, send := range []bool{false, true} {
		const bytes = 4 << 20
		took, err := capped.Stream(networktest.Public4, bytes, send)
		if err != nil {
			t.Fatal(err)
		}
		if least := time.Second * (bytes - 32<<10) / 5e6; took < least { // a burst isn't limited
			t.Errorf("sending %t: 4 MiB take %v at 40 Mbit/s, want %v at least", send, took, least)
		}
	}
}

func testVerify(t *testing.T, w *world) {
	p := policy(0)
	p.Ports, p.Narrow, p.Allow = []uint16{80}, true, []netip.Prefix{netip.MustParsePrefix("20.0.0.0/24")}
	join(t, "a", p)
	rules := made(t, "a", p)
	for _, whole := range []ruleset{rules, shared()} {
		for _, c := range whole.chains {
			for i := range c.rules {
				found, err := w.conn.GetRules(whole.table(), &c.Chain)
				if err != nil {
					t.Fatal(err)
				}
				if err := w.conn.DelRule(found[i]); err != nil {
					t.Fatal(err)
				}
				if err := w.conn.Flush(); err != nil {
					t.Fatal(err)
				}
				if err := Verify("a", p); !errors.Is(err, ErrChanged) {
					t.Errorf("it isn't seen that chain %s lacks rule %d: got %v, want %v", c.Name, i, err, ErrChanged)
				}
				if err := whole.install(w.conn); err != nil {
					t.Fatal(err)
				}
				if err := Verify("a", p); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	other := p
	other.Allow = []netip.Prefix{netip.MustParsePrefix("20.0.0.0/25")}
	if Verify("a", other) == nil {
		t.Error("a set with another network in it is taken for this one")
	}
	further := nftables.Chain{Table: rules.table(), Name: "further"}
	w.conn.AddChain(&further)
	if err := w.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := Verify("a", p); !errors.Is(err, ErrChanged) {
		t.Errorf("a further chain isn't seen: got %v, want %v", err, ErrChanged)
	}
	if err := rules.remove(w.conn); err != nil {
		t.Error(err)
	}
	if err := Verify("a", p); !errors.Is(err, ErrChanged) {
		t.Errorf("that its table is missing isn't seen: got %v, want %v", err, ErrChanged)
	}
}

func testUnread(t *testing.T, w *world) {
	join(t, "a", policy(0))
	rules := made(t, "a", policy(0))
	blind, err := nftables.New(nftables.WithNetNSFd(1 << 20)) // not a namespace
	if err != nil {
		t.Fatal(err)
	}
	if err := rules.verify(blind); !errors.Is(err, ErrUnread) || errors.Is(err, ErrChanged) {
		t.Errorf("where it can't be read: %v", err)
	}
	if err := rules.verify(w.conn); err != nil {
		t.Error(err)
	}
}

func testSilent(t *testing.T, w *world) {
	a := join(t, "a", policy(0))
	rules, err := rulesOf("a", policy(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := rules.silent().install(w.conn); err != nil {
		t.Fatal(err)
	}
	if err := Verify("a", policy(0)); err != nil {
		t.Error(err)
	}
	unanswered(t, a.Send("tcp", networktest.LAN4, networktest.Port), "a denied address", func() (string, error) {
		return a.Ask("tcp", networktest.Public4, networktest.Port)
	})
	more := rules.silent()
	more.chains[0].rules = append(more.chains[0].rules, accept())
	if err := more.install(w.conn); err != nil {
		t.Fatal(err)
	}
	if err := Verify("a", policy(0)); !errors.Is(err, ErrChanged) {
		t.Errorf("a further rule isn't seen: got %v, want %v", err, ErrChanged)
	}
}

func testNothingLeft(t *testing.T, w *world) {
	h := join(t, "a", policy(0))
	if err := Make("a", h.PID, policy(0)); err == nil {
		t.Error("Make succeeds twice for one runner")
	}
	for range 2 {
		if err := Remove("a"); err != nil {
			t.Error(err)
		}
	}
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(links, func(l netlink.Link) bool { return strings.HasPrefix(l.Attrs().Name, network.LinkPrefix) }); i >= 0 {
		t.Errorf("link %s is left", links[i].Attrs().Name)
	}
	tables, err := w.conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "anothers" {
		t.Errorf("tables %s are left, want anothers", got)
	}
}
