package firewall

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/test/networktest"
	"github.com/rockpool/rockpool/test/wait"
)

// A world is a networktest world that includes the machine.
type world struct {
	*networktest.World
	machine *networktest.Host
	conn    *nftables.Conn
}

// TestFence has one world for all its parts, which are the rows of a policy.
func TestFence(t *testing.T) {
	if !networktest.Alone(t) {
		return
	}
	w := &world{World: networktest.New(t), machine: networktest.HostOf(t, os.Getpid())}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	w.conn = conn
	conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "anothers"})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"other addresses are reached", testReached},
		{"always denied addresses aren't", testDenied},
		{"only the machine reaches a runner", testUnreachable},
		{"ports without a way out", testPorts},
		{"a forged source is dropped", testForged},
		{"allowed networks narrow", testAllowed},
		{"addresses of names are reached for a while", testLeases},
		{"an operator permits", testPermitted},
		{"connections are counted", testConnections},
		{"all runners' connections are counted together", testSharedConnections},
		{"connections end with their runner", testConnectionsEnd},
		{"connections for names are few", testNameConnections},
		{"others that come and go change nothing", testOthers},
		{"bandwidth", testBandwidth},
		{"changed rules are refused", testVerify},
		{"unreadable rules aren't taken for changed", testUnread},
		{"a kernel that can't refuse drops", testSilent},
		{"the shared table lasts as long as a runner's", testSharedTable},
		{"nothing is left", testNothingLeft},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, w) })
	}
}

func testReached(t *testing.T, _ *world) {
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
}

func testDenied(t *testing.T, _ *world) {
	neighbour := policy(1)
	neighbour.Ports = []uint16{networktest.Port}
	a, b := join(t, "a", policy(0)), join(t, "b", neighbour)
	b.Serve(networktest.Port)
	ends := []string{"10.213.0.3"} // b's address
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
}

func testUnreachable(t *testing.T, w *world) {
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
}

func testPorts(t *testing.T, w *world) {
	p := policy(0)
	p.Egress, p.Ports = false, []uint16{8000, 8002}
	a := join(t, "a", p)
	a.Serve(8000)
	a.Serve(8001)
	if said, err := networktest.Ask("tcp", "10.213.0.2", 8000); said != "you are 10.213.0.1" {
		t.Errorf("%q, %v", said, err)
	}
	exposed := func() (string, error) { return w.machine.Ask("tcp", "10.213.0.2", 8000) }
	unanswered(t, w.machine.Send("tcp", "10.213.0.2", 8001), "a port that isn't exposed", exposed)
	reaches(t, a, networktest.Public4, false) // there is no route
	a.Do(func() {
		if out, err := exec.Command("ip", "route", "add", "default", "via", "10.213.0.1", "dev", "eth0", "onlink").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	unanswered(t, a.Send("tcp", networktest.Public4, networktest.Port), "a question with a way", exposed) // nor with a route
	var own networktest.Probe
	a.Do(func() { own = networktest.Send(t, "tcp", "10.213.0.2:8002", "10.213.0.1", networktest.Port) })
	unanswered(t, own, "a question of the machine, from a port that may answer,", exposed)
}

func testForged(t *testing.T, w *world) {
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
			// Packets on the link arrive in order.
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
}

func testAllowed(t *testing.T, _ *world) {
	p := policy(0)
	p.Narrow, p.Allow = true, []netip.Prefix{netip.MustParsePrefix("20.0.0.2/32"), netip.MustParsePrefix("2a00:77::/64"), netip.MustParsePrefix("10.0.0.0/7")}
	a := join(t, "a", p)
	for to, want := range map[string]bool{
		networktest.Public4: true, networktest.Public6: true, networktest.Other4: false, networktest.Other6: false,
		"10.7.7.7": false, networktest.MachinePublic6: false,
	} {
		reaches(t, a, to, want)
	}
}

func testLeases(t *testing.T, w *world) {
	p := policy(0)
	p.Narrow = true
	a := join(t, "a", p)
	reaches(t, a, networktest.Public4, false)
	for range 2 { // the second lease renews it
		err := Lease("a", network.Lease{Addresses: []netip.Addr{netip.MustParseAddr(networktest.Public4), netip.MustParseAddr(networktest.Public6), netip.MustParseAddr(networktest.LAN4)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	reaches(t, a, networktest.Public4, true)
	reaches(t, a, networktest.Public6, true)
	reaches(t, a, networktest.Other4, false)
	reaches(t, a, networktest.LAN4, false) // whatever a name resolves to
	leased := func() []nftables.SetElement {
		set, err := w.conn.GetSetByName(&nftables.Table{Family: nftables.TableFamilyNetdev, Name: tableOf("a")}, setNamed4)
		if err != nil {
			t.Fatal(err)
		}
		all, err := w.conn.GetSetElements(set)
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
}

func testPermitted(t *testing.T, _ *world) {
	p := policy(0)
	p.Permit = []netip.Prefix{netip.MustParsePrefix("192.168.77.0/24"), netip.MustParsePrefix("10.0.0.0/8")}
	a, b := join(t, "a", p), join(t, "b", policy(1))
	b.Serve(networktest.Port)
	for to, want := range map[string]bool{
		networktest.LAN4: true, "10.7.7.7": true, networktest.MachineLAN4: false, networktest.Metadata: false, "10.213.0.3": false, "172.16.7.7": false,
	} {
		reaches(t, a, to, want)
	}
}

// testSharedTable connects and removes runners of two servers concurrently.
func testSharedTable(t *testing.T, w *world) {
	var servers sync.WaitGroup
	for _, slot := range []int{1, 2} {
		h, p, id := networktest.NewHost(t), policy(slot), fmt.Sprint("shared-", slot)
		servers.Go(func() {
			for range 200 { // enough to meet without the lock: one removes the table while the other is being connected
				if err := errors.Join(Make(id, h.PID, p), Verify(id, p), Remove(id), Remove(id)); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	servers.Wait()
	unlock, err := lockShared(unix.LOCK_SH) // as while another server's runner is being connected
	if err != nil {
		t.Fatal(err)
	}
	if err := ensureShared(w.conn); err != nil {
		t.Fatal(err)
	}
	// A helper that was killed may have left only the shared table.
	for _, connecting := range []bool{true, false} {
		if err := Remove("shared-1"); err != nil {
			t.Error(err)
		}
		if there, err := shared().exists(w.conn); there != connecting || err != nil {
			t.Errorf("without runners, connecting another: %t, the shared table is there: %t, %v", connecting, there, err)
		}
		unlock()
	}
}
