package attack

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/doctor/attack/world"
)

// A Reach is the network access of attacked runners. Their network is the simulated one of package
// world, which ends on this machine.
type Reach string

// The kinds of network access.
const (
	Offline Reach = ""
	Open    Reach = "open"    // all public addresses
	Named   Reach = "named"   // public.example, and names that resolve to denied addresses
	Exposed Reach = "exposed" // all public addresses, and one exposed port
	Slow    Reach = "slow"    // all public addresses, with little bandwidth
)

// exposedPort is the exposed port of runners. MappedFirst to MappedLast are the machine's ports
// that it can be mapped to.
const (
	exposedPort = "8000"
	MappedFirst = 20000
	MappedLast  = 20015
)

// slowMbit is a bandwidth at which 2 MiB take at least 0.8 s.
const slowMbit = 20

// input returns the network settings of an environment with this access. The caller handles
// Offline, which has none.
func (r Reach) input() *client.NetworkInput {
	switch input := (&client.NetworkInput{Access: new(true)}); r {
	case Named:
		input.AllowNames = []string{"public.example", "lan.example", "lan6.example", "metadata.example", "machine.example", "mapped.example", "zero.example", "local.example"}
		return input
	case Exposed:
		input.ExposedPorts = []int{8000}
		return input
	case Slow:
		input.BandwidthMbit = new(slowMbit)
		return input
	default:
		return input
	}
}

// gateway is the machine's address for runners with network access.
const gateway = "10.213.0.1"

// at returns the prober's argument for an address at which the simulated network responds.
func at(network, address string) string {
	return network + "/" + net.JoinHostPort(address, strconv.Itoa(world.Port))
}

// all returns at for each address.
func all(network string, addresses ...string) (places []string) {
	for _, a := range addresses {
		places = append(places, at(network, a))
	}
	return places
}

// unreached matches the output for an unreachable address: an immediate refusal, or silence if the
// kernel can only drop packets, as Debian's.
const unreached = "(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|EACCES|silence)"

// contact returns a step that contacts addresses. Each one may stay silent for 10 seconds.
func contact(places ...string) Step { return probe(append([]string{"ask"}, places...)...).within(30) }

// refused returns an attack that contacts denied addresses. A public address must respond, which
// shows that the network works; the others must not.
func refused(name, tries string, by Defence, places ...string) Attack {
	lines := fmt.Sprintf("^tcp \\S+ answered\n(\\S+ \\S+ %s\n){%d}=> EXITED 0", unreached, len(places))
	return Attack{
		Name: name, Class: Network, Defence: by, Tries: tries, Reach: Open, Tiers: shared, Gentle: true,
		Steps: []Step{contact(append([]string{at("tcp", world.Public4)}, places...)...)}, Held: lines,
	}
}

// silent returns an attack that sends datagrams. They must not arrive, while a datagram sent after them does.
func silent(name, tries string, by Defence, sends ...Step) Attack {
	a := Attack{Name: name, Class: Network, Defence: by, Tries: tries, Reach: Open, Tiers: shared, Gentle: true}
	a.Steps = append(slices.Clone(sends), contact(at("udp", world.Public4), at("udp", world.Public6)))
	for _, s := range sends {
		const text = 3 // index of the text in the prober's arguments
		a.Steps = append(a.Steps, heard(s.command[text]))
	}
	a.Held = fmt.Sprintf("^(\\w+ .*\n=> EXITED 0\n){%d}(udp \\S+ answered\n){2}=> EXITED 0\n(=> nothing came\n){%[1]d}", len(sends))
	return a
}

// online returns attacks of runners with network access.
func online() []Attack {
	machine := []string{world.Machine4, world.Machine6, world.MachineLAN4, world.MachineLAN6, world.MachineLink, gateway}
	rows := []Attack{
		refused("a cloud's metadata, online", "to get the machine's credentials from the cloud's metadata service", Denied, all("tcp", world.Clouds...)...),
		refused("private networks, online", "to reach private networks of the machine", Denied, all("tcp", world.Private...)...),
		refused("private networks by UDP", "to reach private networks of the machine by UDP", Denied, all("udp", world.Private...)...),
		refused("IPv4-mapped addresses", "to reach a private network with IPv4-mapped IPv6 addresses", Denied, all("mapped", world.LAN4, world.Metadata, world.MachineLAN4)...),
		refused("addresses that embed IPv4", "to reach a private network with 6to4, NAT64 or Teredo addresses", Denied, all("tcp", world.Carriers...)...),
		refused("the machine's addresses", "to reach the machine, at each of its addresses", Machine, all("tcp", machine...)...),
		refused("the machine's addresses by UDP", "to reach the machine by UDP, at each of its addresses", Machine, all("udp", machine...)...),
		refused("the machine's loopback, online", "to reach services on the machine's loopback", OwnNetwork, all("tcp", "127.0.0.1", "::1", "0.0.0.0", "127.8.8.8")...),
		refused("other ports of the name server", "to reach other ports at the address of the name server", Machine, "tcp/"+gateway+":22", "tcp/"+gateway+":8080", "udp/"+gateway+":54"),
		silent("broadcast, online", "to send broadcasts and multicasts", Denied,
			probe("send", "255.255.255.255:7777", "broadcast", "0"), probe("send", "20.0.0.255:7777", "subnet", "0"), probe("send", "224.0.0.251:7777", "group4", "0"),
			probe("send", "[ff02::1%eth0]:7777", "group6", "0"), probe("send", "[ff05::fb]:7777", "site6", "0")),
		silent("fragmented datagrams", "to bypass the packet filter with fragments, of which only the first has ports", Denied,
			probe("send", world.LAN4+":7777", "pieces4", "4000"), probe("send", "["+world.LAN6+"]:7777", "pieces6", "4000"), probe("send", world.Machine4+":7777", "pieces", "60000")),
		// The forged addresses are the last ones, which no runner has.
		silent("spoofed addresses", "to send packets with another source address", OwnAddress,
			probe("forge", "fd52:6f63:6b70:6f6f::fffe", "forged6", "["+world.Public6+"]:7777"), probe("forge", world.LAN6, "forgedlan", "["+world.Public6+"]:7777"), probe("forge", "10.213.255.254", "forged4", world.Public4+":7777")),
		silent("another protocol", "to bypass the packet filter with a protocol that it doesn't know", Protocols, probe("lite", world.Public4, "lite", "7777")),
		{
			// Its hardware address isn't announced, so nothing can refuse the connection immediately.
			Name: "the machine's link-local address", Class: Network, Defence: Machine, Tries: "to reach the machine at its link-local address", Reach: Open, Tiers: shared, Gentle: true,
			Steps: []Step{contact(at("tcp", "fe80::72:70ff:fe00:1%eth0"))}, Held: "^tcp \\S+ " + unreached + "\n=> EXITED 0",
		},
		{
			Name: "raw packets", Class: Network, Defence: Filter, Tries: "to send raw packets, such as forged ARP replies", Reach: Open, Tiers: shared, Gentle: true,
			Steps: []Step{calls("packet", "raw-socket", "netlink-filter"), calls("packet", "raw-socket", "netlink-filter").asRoot()},
			Held:  "^(packet EAFNOSUPPORT\nraw-socket EPERM\nnetlink-filter E\\w+\n=> EXITED 0\n){2}",
		},
		{
			Name: "network configuration", Class: Network, Defence: Capabilities, Tries: "to change its own address, MTU, hardware address, neighbours or routes", Reach: Open, Tiers: shared, Gentle: true,
			Steps: []Step{probe("link"), probe("link").asRoot()},
			Held:  "^((link \\w+ EPERM\n){7}=> EXITED 0\n){2}",
		},
		{
			Name: "the machine's abstract sockets, online", Class: Network, Defence: OwnNetwork, Tries: "to reach a program on the machine through an abstract socket", Reach: Open, Tiers: shared, Gentle: true,
			Steps: []Step{probe("abstract", "connect", "{abstract}")}, Held: "^abstract ECONNREFUSED\n=> EXITED 0",
		},
		{
			Name: "another runner, online", Class: Network, Defence: Runners, Tries: "to reach a port in another runner with network access", Reach: Open, Tiers: shared,
			Steps: []Step{
				probe("serve", "7777", "50").inOther().behind(),
				contact(at("tcp", "127.0.0.1")).inOther(),
				contact(at("tcp", world.Public4), "tcp/{other4}:7777", "tcp/[{other6}]:7777", "udp/{other4}:7777", "mapped/{other4}:7777"),
			},
			Held: "^listening done\n=> \ntcp \\S+ answered\n=> EXITED 0\ntcp \\S+ answered\n(\\S+ \\S+ " + unreached + "\n){4}=> EXITED 0",
		},
		{
			Name: "many connections", Class: Network, Defence: Connections, Tries: "to exhaust the machine's connection tracking", Reach: Open, Tiers: shared, Bomb: true,
			Steps: []Step{probe("flows", world.Public4+":7777", "1100")}, Held: "^followed few, \\d+\n=> EXITED 0",
		},
		{
			Name: "a flood of packets", Class: Network, Defence: Bandwidth, Tries: "to use all of the machine's bandwidth", Reach: Slow, Tiers: shared, Bomb: true,
			Steps: []Step{probe("rate", "drain", world.Public4+":7777", "2097152"), probe("rate", "flood", world.Public4+":7777", "2097152")},
			Held:  "^drain slow, \\d+ ms\n=> EXITED 0\nflood slow, \\d+ ms\n=> EXITED 0",
		},
	}
	return append(rows, named()...)
}

// named returns attacks with names and with exposed ports.
func named() []Attack {
	unknown := "(\\S+ \\S+ .*(no such host|server misbehaving)\n)"
	var leading []string
	for _, name := range []string{"lan", "lan6", "metadata", "machine", "mapped", "zero", "local"} {
		leading = append(leading, at("tcp", name+".example"))
	}
	return []Attack{
		{
			Name: "names that resolve to denied addresses", Class: Network, Defence: Rebinding, Tries: "to reach private networks through allowed names", Reach: Named, Tiers: shared, Gentle: true,
			Steps: []Step{contact(append([]string{at("tcp", "public.example")}, leading...)...)},
			Held:  fmt.Sprintf("^tcp \\S+ answered\n%s{%d}=> EXITED 0", unknown, len(leading)),
		},
		{
			Name: "addresses that aren't allowed", Class: Network, Defence: Narrowed, Tries: "to reach public addresses that the environment doesn't allow", Reach: Named, Tiers: shared, Gentle: true,
			Steps: []Step{contact(at("tcp", "public.example"), at("tcp", world.Other4), at("tcp", world.Public6), at("udp", world.Other4))},
			Held:  "^tcp \\S+ answered\n(\\S+ \\S+ " + unreached + "\n){3}=> EXITED 0",
		},
		{
			Name: "another name server", Class: Network, Defence: Narrowed, Tries: "to tunnel data out through name resolution", Reach: Named, Tiers: shared, Gentle: true,
			Steps: []Step{
				contact(at("tcp", "public.example"), "udp/"+world.Resolver+":53", "tcp/"+world.Resolver+":53", "tcp/"+world.Resolver+":853", "udp/"+world.Resolver+":853"),
				contact(at("tcp", "secret.tunnel.example")), heard("asked secret.tunnel.example"),
			},
			Held: "^tcp \\S+ answered\n(\\S+ \\S+ " + unreached + "\n){4}=> EXITED 0\n" + unknown + "=> EXITED 0\n=> nothing came\n",
		},
		{
			Name: "connections from an exposed port", Class: Network, Defence: Answers, Tries: "to open connections to the machine from an exposed port", Reach: Exposed, Tiers: shared,
			Steps: []Step{probe("from", exposedPort, gateway+":7777").within(30), probe("from", exposedPort, world.Machine4+":7777").within(30)},
			Held:  "^(tcp \\S+ " + unreached + "\n=> EXITED 0\n){2}",
		},
		{
			Name: "another runner's exposed port", Class: Network, Defence: Machine, Tries: "to reach another runner through its mapped port on the machine", Reach: Exposed, Tiers: shared,
			Steps: []Step{
				probe("serve", exposedPort, "50").inOther().behind(), scanned("127.0.0.1"), scanned(gateway), scanned(world.Machine4), scanned(world.Machine6),
			},
			Held: "^listening done\n=> \n(open 0\n=> EXITED 0\n){4}",
		},
		{
			Name: "an exposed port of the previous runner", Class: Network, Defence: OwnNetwork, Tries: "to keep the exposed port of the next runner", Reach: Exposed, Tiers: shared,
			Steps: []Step{
				probe("serve", exposedPort, "50").behind(), next(), contact("tcp/127.0.0.1:" + exposedPort), probe("serve", exposedPort, "1"),
			},
			Held: "^listening done\n=> \n=> next\ntcp \\S+ ECONNREFUSED\n=> EXITED 0\nlistening done\n=> EXITED 0",
		},
	}
}

// scanned returns a step that scans the ports to which exposed ports are mapped.
func scanned(address string) Step {
	return probe("scan", address, strconv.Itoa(MappedFirst), strconv.Itoa(MappedLast)).within(30)
}
