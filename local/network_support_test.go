package local

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/access"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/networktest"
	"github.com/rockpool/rockpool/test/wait"
)

// ask is a program that prints an address's answer.
const ask = `import socket, sys
kind, to, port, patience = sys.argv[1:]
family = socket.AF_INET6 if ":" in to else socket.AF_INET
s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.settimeout(float(patience))
try:
    s.connect((to, int(port))); s.send(b"hello"); print(s.recv(100).decode())
except OSError as e:
    print("refused" if isinstance(e, (ConnectionRefusedError, PermissionError)) else e)
`

// networked opens a cluster with a network, in the test's world.
func networked(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.config.Network = &access.Config{
		Offer:     network.Offer{Pool: network.Pool{V4: network.DefaultPool4, V6: network.DefaultPool6}, Bandwidth: 1000},
		Upstreams: []netip.AddrPort{nameServer(t)},
		Address:   netip.MustParseAddr("127.0.0.1"), First: 20000, Last: 20099,
	}
	b.stop()
	b.open()
	return b
}

// nameServer knows public.example, private.example and another.example.
func nameServer(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{"public.example.": networktest.Public4, "private.example.": networktest.LAN4, "another.example.": networktest.Other4}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for packet := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(packet[:n]) != nil {
				continue
			}
			m.Response = true
			if a, ok := known[m.Questions[0].Name.String()]; ok && m.Questions[0].Type == dnsmessage.TypeA {
				h := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 60}
				m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()}}}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(packed, from)
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

func networkEnvironment(n runtime.Network) runtime.Environment {
	env := hostEnvironment()
	env.Network = n
	return env
}

// noRoute is the error that a program gets for a denied datagram.
const noRoute = "[Errno 113] No route to host"

func (b *bench) tells(id runtime.RunnerID, protocol, to string, port int, want string) {
	b.t.Helper()
	patience := wait.Limit
	if (want == "refused" || want == noRoute) && !networktest.Refuses(b.t) {
		want = "timed out"
	}
	if want == "timed out" { // inside, nothing else shows it
		patience = 2 * time.Second
	}
	b.expect(id, fmt.Sprintf("python3 -c '%s' %s %s %d %f", ask, protocol, to, port, patience.Seconds()), want)
}

// noNetworkLeft fails the test if a runner's link or table is left.
func (b *bench) noNetworkLeft() {
	b.t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, network.LinkPrefix) {
			b.t.Errorf("link %s is left", l.Attrs().Name)
		}
	}
	for _, name := range ownTables(b.t) {
		b.t.Errorf("table %s is left", name)
	}
}

// ownTables returns the names of runners' tables.
func ownTables(t testing.TB) (names []string) {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	all, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range all {
		if strings.HasPrefix(table.Name, "rockpool-") {
			names = append(names, table.Name)
		}
	}
	return names
}
