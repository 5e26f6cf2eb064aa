package fence

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/networktest"
	"github.com/rockpool/rockpool/test/wait"
)

// TestFence has one world for all of its parts, which are the rows of a policy.
func TestFence(t *testing.T) {
	if !networktest.Alone(t) {
		return
	}
	w := networktest.New(t)
	machine := networktest.HostOf(t, os.Getpid())
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "anothers"})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}

	t.Run("what isn't denied is reached", func(t *testing.T) {
		a := join(t, "a", policy(0))
		for _, protocol := range []string{"tcp", "udp"} {
			for to, as := range map[string]string{networktest.Public4: networktest.MachinePublic4, networktest.Public6: networktest.MachinePublic6} {
				if said, err := a.Ask(protocol, to, networktest.Port); said != "you are "+as {
					t.Errorf("%s %s: %q, %v", protocol, to, said, err)
				}
			}
		}
		reaches(t, a, "8.8.8.8", true)
		reaches(t, a, "2606:4700::1", true)
		a.Do(func() {
			for network, to := range map[string]string{"ip4:icmp": networktest.Public4, "ip6:ipv6-icmp": networktest.Public6} {
				if err := ping(network, to); err != nil {
					t.Errorf("ping %s: %v", to, err)
				}
			}
		})
	})
	t.Run("what is always denied isn't", func(t *testing.T) {
		neighbour := policy(1)
		neighbour.Ports = []uint16{networktest.Port}
		a, b := join(t, "a", policy(0)), join(t, "b", neighbour)
		b.Serve(networktest.Port)
		ends := []string{"10.213.0.3"} // b's
		for _, to := range append(ends,
			networktest.LAN4, networktest.LAN6, networktest.Metadata, "fd00:ec2::254", "168.63.129.16",
			"10.7.7.7", "100.64.7.7", "172.16.7.7", "198.18.7.7", "192.0.2.7",
			"2002:c0a8:4d02::1", "64:ff9b::c0a8:4d02", "2001::7", "::ffff:"+networktest.LAN4,
			networktest.MachinePublic4, networktest.MachinePublic6, networktest.MachineLAN4, "fd77::1", "169.254.1.1", "10.213.0.1",
		) {
			if _, err := networktest.Ask("tcp", to, networktest.Port); err != nil {
				t.Errorf("the machine itself doesn't reach %s (%v), so this shows nothing", to, err)
			}
			reaches(t, a, to, false)
		}
	})
	t.Run("nobody but the machine reaches a runner", func(t *testing.T) {
		p := policy(0)
		p.Ports = []uint16{networktest.Port}
		join(t, "a", p).Serve(networktest.Port)
		w.Outside.Do(func() {
			out, err := exec.Command("ip", "route", "replace", "10.213.0.0/16", "via", networktest.MachinePublic4).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		})
		if said, err := networktest.Ask("tcp", "10.213.0.2", networktest.Port); said != "you are 10.213.0.1" {
			t.Errorf("the machine: %q, %v", said, err)
		}
		unanswered(t, w.Outside.Send("tcp", "10.213.0.2", networktest.Port), "another machine", func() (string, error) {
			return w.Outside.Ask("tcp", networktest.MachinePublic4, networktest.Port)
		})
	})
	t.Run("ports without a way out", func(t *testing.T) {
		p := policy(0)
		p.Egress, p.Ports = false, []uint16{8000, 8002}
		a := join(t, "a", p)
		a.Serve(8000)
		a.Serve(8001)
		if said, err := networktest.Ask("tcp", "10.213.0.2", 8000); said != "you are 10.213.0.1" {
			t.Errorf("%q, %v", said, err)
		}
		exposed := func() (string, error) { return machine.Ask("tcp", "10.213.0.2", 8000) }
		unanswered(t, machine.Send("tcp", "10.213.0.2", 8001), "a port that isn't exposed", exposed)
		reaches(t, a, networktest.Public4, false) // there is no way
		a.Do(func() {
			if out, err := exec.Command("ip", "route", "add", "default", "via", "10.213.0.1", "dev", "eth0", "onlink").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		})
		unanswered(t, a.Send("tcp", networktest.Public4, networktest.Port), "a question with a way", exposed) // nor is there with one
		var own networktest.Question
		a.Do(func() { own = networktest.Send(t, "tcp", "10.213.0.2:8002", "10.213.0.1", networktest.Port) })
		unanswered(t, own, "a question of the machine, from a port that may answer,", exposed)
	})
	t.Run("a forged source is dropped", func(t *testing.T) {
		a := join(t, "a", policy(0))
		for _, c := range [][2]string{{"10.213.0.99", networktest.Public4}, {"192.168.77.99", networktest.Public4}, {"fd52:6f63:6b70:6f6f::99", networktest.Public6}} {
			a.Do(func() {
				if out, err := exec.Command("ip", "addr", "add", c[0], "dev", "eth0", "nodad").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(c[0])}}
				conn, err := d.Dial("udp", net.JoinHostPort(c[1], "7777"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_, _ = conn.Write([]byte("forged by " + c[0]))
				// What is sent after it arrives after it.
				d.LocalAddr = nil
				if netip.MustParseAddr(c[1]).Is4() {
					d.LocalAddr = &net.UDPAddr{IP: net.ParseIP("10.213.0.2")}
				} else {
					d.LocalAddr = &net.UDPAddr{IP: net.ParseIP("fd52:6f63:6b70:6f6f::2")}
				}
				own, err := d.Dial("udp", net.JoinHostPort(c[1], "7777"))
				if err != nil {
					t.Fatal(err)
				}
				defer own.Close()
				_ = own.SetDeadline(time.Now().Add(wait.Limit))
				_, _ = own.Write([]byte("hello"))
				if _, err := own.Read(make([]byte, 100)); err != nil {
					t.Error(err)
				}
			})
			if w.Received("forged by " + c[0]) {
				t.Errorf("%s sends as %s", "a", c[0])
			}
		}
	})
	t.Run("allowed networks narrow", func(t *testing.T) {
		p := policy(0)
		p.Narrow, p.Allow = true, []netip.Prefix{netip.MustParsePrefix("20.0.0.2/32"), netip.MustParsePrefix("2a00:77::/64"), netip.MustParsePrefix("10.0.0.0/7")}
		a := join(t, "a", p)
		for to, want := range map[string]bool{
			networktest.Public4: true, networktest.Public6: true, networktest.Other4: false, networktest.Other6: false,
			"10.7.7.7": false, networktest.MachinePublic6: false,
		} {
			reaches(t, a, to, want)
		}
	})
	t.Run("what names stand for is reached for a while", func(t *testing.T) {
		p := policy(0)
		p.Narrow = true
		a := join(t, "a", p)
		reaches(t, a, networktest.Public4, false)
		for range 2 { // again renews it
			err := Lease("a", network.Lease{Addresses: []netip.Addr{netip.MustParseAddr(networktest.Public4), netip.MustParseAddr(networktest.Public6), netip.MustParseAddr(networktest.LAN4)}})
			if err != nil {
				t.Fatal(err)
			}
		}
		reaches(t, a, networktest.Public4, true)
		reaches(t, a, networktest.Public6, true)
		reaches(t, a, networktest.Other4, false)
		reaches(t, a, networktest.LAN4, false) // whatever a name stands for
		leased := func() []nftables.SetElement {
			set, err := conn.GetSetByName(&nftables.Table{Family: nftables.TableFamilyNetdev, Name: tableOf("a")}, setNamed4)
			if err != nil {
				t.Fatal(err)
			}
			all, err := conn.GetSetElements(set)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		before := len(leased())
		if err := lease("a", []netip.Addr{netip.MustParseAddr(networktest.Other4)}, 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "a lease ends", func() bool { return len(leased()) <= before })
		reaches(t, a, networktest.Other4, false)
		if err := lease("a", []netip.Addr{netip.MustParseAddr(networktest.Other4)}, network.LeaseTime/2); err != nil {
			t.Fatal(err)
		}
		reaches(t, a, networktest.Other4, true)
		for _, e := range leased() {
			if e.Expires <= network.LeaseTime/2 {
				t.Errorf("the lease of %v, which was used, ends in %v", e.Key, e.Expires)
			}
		}
		if err := Verify("a", p); err != nil {
			t.Error(err)
		}
	})
	t.Run("an operator permits", func(t *testing.T) {
		p := policy(0)
		p.Permit = []netip.Prefix{netip.MustParsePrefix("192.168.77.0/24"), netip.MustParsePrefix("10.0.0.0/8")}
		a, b := join(t, "a", p), join(t, "b", policy(1))
		b.Serve(networktest.Port)
		for to, want := range map[string]bool{
			networktest.LAN4: true, "10.7.7.7": true, networktest.MachineLAN4: false, networktest.Metadata: false, "10.213.0.3": false, "172.16.7.7": false,
		} {
			reaches(t, a, to, want)
		}
	})
	t.Run("connections are counted", func(t *testing.T) {
		a := join(t, "a", policy(0))
		const few = 100 // of which the last are sent at once
		var all []networktest.Question
		a.Do(func() {
			for range maxConnections + 40 {
				all = append(all, networktest.Send(t, "udp", "", networktest.Public4, networktest.Port))
				if len(all) <= maxConnections-few {
					all[len(all)-1].Await(t)
				}
			}
		})
		if answered := maxConnections - few + answers(t, all[maxConnections-few:], all[0]); answered > maxConnections+2 { // the kernel counts while others end
			t.Errorf("%d at once were answered, want at most %d", answered, maxConnections)
		}
		names := "10.213.0.1" // at which the machine answers, too
		networktest.NewServer(t, 53)
		b := join(t, "b", policy(1)) // another's don't count
		reaches(t, b, networktest.Public4, true)
		unanswered(t, a.Send("udp", names, 53), "a question of the machine, with all its connections,", func() (string, error) {
			return b.Ask("udp", names, 53)
		})
	})
	t.Run("all runners' connections are counted together", func(t *testing.T) {
		const few = 10
		networktest.NewServer(t, 53)
		a, b := join(t, "a", policy(0)), join(t, "b", policy(1))
		rules := shared()
		limit := rules.chains[0].rules[0][0].(*expr.Connlimit)
		limit.Count = few
		if err := rules.install(conn); err != nil {
			t.Fatal(err)
		}
		ofA, ofB := []networktest.Question{a.Send("udp", networktest.Public4, networktest.Port)}, []networktest.Question{b.Send("udp", "10.213.0.1", 53)}
		ofA[0].Await(t)
		ofB[0].Await(t)
		for range few - 1 {
			ofA = append(ofA, a.Send("udp", networktest.Public4, networktest.Port))
			ofB = append(ofB, b.Send("udp", "10.213.0.1", 53))
		}
		answered := 2 + answers(t, ofA[1:], ofA[0]) + answers(t, ofB[1:], ofB[0])
		if answered > few+2 || answered < few/2 { // what begins at once may be one too many
			t.Errorf("%d at once were answered, want about %d", answered, few)
		}
		if err := shared().install(conn); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("connections end with their runner", func(t *testing.T) {
		for public, machine := range map[string]string{networktest.Public4: networktest.MachinePublic4, networktest.Public6: networktest.MachinePublic6} {
			outside := listen(t, w.Outside, public, 6000)
			accomplice, c := addressed(public, 6000), join(t, "c", policy(1))
			others := listen(t, c, of(1, public), 5001)
			say(t, others, accomplice, "hello")
			_, toOthers := hear(t, outside)
			a := join(t, "a", policy(0))
			first := listen(t, a, of(0, public), 5000)
			say(t, first, accomplice, "hello")
			_, toFirst := hear(t, outside)
			if want := addressed(machine, 5000); toFirst != want {
				t.Fatalf("it is seen outside as %v, not %v", toFirst, want)
			}
			say(t, outside, toFirst, "for the first")
			if said, _ := hear(t, first); said != "for the first" {
				t.Errorf("the first is told %q", said)
			}
			if err := Remove("a"); err != nil {
				t.Fatal(err)
			}
			b := join(t, "a", policy(0)) // has its address and its port
			second := listen(t, b, of(0, public), 5000)
			say(t, outside, toFirst, "for the first")
			say(t, outside, toOthers, "for the other")
			if said, _ := hear(t, others); said != "for the other" {
				t.Errorf("the other, who goes on, is told %q", said)
			}
			for range 4 { // as in unanswered
				reaches(t, b, public, true)
			}
			say(t, second, accomplice, "hello")
			_, toSecond := hear(t, outside)
			say(t, outside, toSecond, "for the second")
			if said, _ := hear(t, second); said != "for the second" {
				t.Errorf("the second is told %q", said)
			}
			for _, id := range []string{"a", "c"} {
				if err := Remove(id); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	t.Run("connections for names are few", func(t *testing.T) {
		networktest.NewServer(t, 53)
		const tried = 800
		a := join(t, "a", policy(0))
		var all []networktest.Question
		began := time.Now()
		a.Do(func() {
			for range tried {
				all = append(all, networktest.Send(t, "tcp", "", "10.213.0.1", 53))
			}
		})
		for range 4 { // after which it is decided which of them are made
			reaches(t, a, networktest.Public4, true)
		}
		made := count(all)
		most := questions * (2 + int(time.Since(began)/time.Second)) // so many at once, and a second
		if made < questions || made > most {
			t.Errorf("of %d connections at once %d are made, want %d to %d", tried, made, questions, most)
		}
	})
	t.Run("others that come and go change nothing", func(t *testing.T) {
		p := policy(0)
		join(t, "a", p)
		rules := made(t, "a", p)
		others := make([]nftables.Table, 60)
		for range 20 {
			for i := range others {
				others[i] = nftables.Table{Family: nftables.TableFamilyNetdev, Name: fmt.Sprintf("other-%d", i)}
				conn.AddTable(&others[i])
				for j := range 20 {
					conn.AddChain(&nftables.Chain{Table: &others[i], Name: fmt.Sprintf("chain%d", j)})
				}
				if err := conn.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if err := rules.install(conn); err != nil { // after them
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
				if err := rules.verifyOnce(conn); err != nil {
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
	})
	t.Run("bandwidth", func(t *testing.T) {
		p := policy(1)
		p.Wish.Bandwidth = 40 // 5 MB/s
		capped := join(t, "b", p)
		for _, send := range []bool{false, true} {
			const bytes = 4 << 20
			took, err := capped.Stream(networktest.Public4, bytes, send)
			if err != nil {
				t.Fatal(err)
			}
			if least := time.Second * (bytes - 32<<10) / 5e6; took < least { // a burst goes at once
				t.Errorf("sending %t: 4 MiB take %v at 40 Mbit/s, want %v at least", send, took, least)
			}
		}
	})
	t.Run("what doesn't come back as it was made is refused", func(t *testing.T) {
		p := policy(0)
		p.Ports, p.Narrow, p.Allow = []uint16{80}, true, []netip.Prefix{netip.MustParsePrefix("20.0.0.0/24")}
		join(t, "a", p)
		rules := made(t, "a", p)
		for _, whole := range []ruleset{rules, shared()} {
			for _, c := range whole.chains {
				for i := range c.rules {
					found, err := conn.GetRules(whole.table(), &c.Chain)
					if err != nil {
						t.Fatal(err)
					}
					if err := conn.DelRule(found[i]); err != nil {
						t.Fatal(err)
					}
					if err := conn.Flush(); err != nil {
						t.Fatal(err)
					}
					if err := Verify("a", p); !errors.Is(err, ErrChanged) {
						t.Errorf("it isn't seen that chain %s lacks rule %d: %v", c.Name, i, err)
					}
					if err := whole.install(conn); err != nil {
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
		conn.AddChain(&further)
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := Verify("a", p); !errors.Is(err, ErrChanged) {
			t.Errorf("a further chain isn't seen: %v", err)
		}
		if err := rules.remove(conn); err != nil {
			t.Error(err)
		}
		if err := Verify("a", p); !errors.Is(err, ErrChanged) {
			t.Errorf("that its table is missing isn't seen: %v", err)
		}
	})
	t.Run("what nobody can read isn't taken for changed", func(t *testing.T) {
		join(t, "a", policy(0))
		rules := made(t, "a", policy(0))
		blind, err := nftables.New(nftables.WithNetNSFd(1 << 20)) // which is no namespace
		if err != nil {
			t.Fatal(err)
		}
		if err := rules.verify(blind); !errors.Is(err, ErrUnread) || errors.Is(err, ErrChanged) {
			t.Errorf("where it can't be read: %v", err)
		}
		if err := rules.verify(conn); err != nil {
			t.Error(err)
		}
	})
	t.Run("a kernel that can't refuse drops", func(t *testing.T) {
		a := join(t, "a", policy(0))
		rules, err := rulesOf("a", policy(0))
		if err != nil {
			t.Fatal(err)
		}
		if err := rules.silent().install(conn); err != nil {
			t.Fatal(err)
		}
		if err := Verify("a", policy(0)); err != nil {
			t.Error(err)
		}
		unanswered(t, a.Send("tcp", networktest.LAN4, networktest.Port), "what is denied", func() (string, error) {
			return a.Ask("tcp", networktest.Public4, networktest.Port)
		})
		more := rules.silent()
		more.chains[0].rules = append(more.chains[0].rules, accept())
		if err := more.install(conn); err != nil {
			t.Fatal(err)
		}
		if err := Verify("a", policy(0)); !errors.Is(err, ErrChanged) {
			t.Errorf("a further rule isn't seen: %v", err)
		}
	})
	t.Run("nothing is left", func(t *testing.T) {
		h := join(t, "a", policy(0))
		if err := Make("a", h.PID, policy(0)); err == nil {
			t.Error("it is made twice")
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
		tables, err := conn.ListTables()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, table := range tables {
			names = append(names, table.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != "anothers rockpool" {
			t.Errorf("tables %s are left", got)
		}
	})
}
