package firewall

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/local/network"
)

const inside = "eth0"

// Both ends have permanent neighbour entries for each other. So neither needs ARP or neighbour
// discovery, and no answer can be forged.
var (
	machineMAC = net.HardwareAddr{0x02, 0x72, 0x70, 0, 0, 1}
	runnerMAC  = net.HardwareAddr{0x02, 0x72, 0x70, 0, 0, 2}
	machine6   = netip.MustParseAddr("fe80::1") // stands for the machine's end; no interface has it
)

// mtu is Ethernet's. If a link further out has a smaller one, the machine answers like any router.
const mtu = 1500

// A pair is a link with both ends down.
type pair struct {
	policy network.Policy
	name   string
	within *netlink.Handle // in the runner's network namespace
	ns     netns.NsHandle
}

// makeLink makes a link with one end in a process's network namespace. The caller closes the pair.
func makeLink(id string, pid int, p network.Policy) (*pair, error) {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	var within *netlink.Handle
	proc.OnThread(func() { within, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE) }) // it enters ns for a moment
	if err != nil {
		_ = ns.Close()
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	l := &pair{policy: p, name: network.Name(id), within: within, ns: ns}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = l.name, mtu, machineMAC
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: inside, PeerHardwareAddr: runnerMAC, PeerMTU: mtu, PeerNamespace: netlink.NsFd(ns)}
	if err := netlink.LinkAdd(veth); err != nil {
		l.close()
		return nil, fmt.Errorf("make link %s: %w", l.name, err)
	}
	return l, nil
}

// close closes the handles. The link stays.
func (l *pair) close() {
	l.within.Close()
	_ = l.ns.Close()
}

// raise sets the addresses, routes and bandwidth of both ends, and brings them and the namespace's
// lo up.
func (l *pair) raise() error {
	v4, v6, err := l.policy.Pool.Addresses(l.policy.Slot)
	if err != nil {
		return err
	}
	mine, err := netlink.LinkByName(l.name)
	if err != nil {
		return err
	}
	its, err := l.within.LinkByName(inside)
	if err != nil {
		return err
	}
	own, err := l.within.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := l.within.LinkSetUp(own); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	machine, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer machine.Close()
	ends := []end{{machine, mine}, {l.within, its}}
	// The limits are set while both ends are down, so no packet passes without them.
	for _, e := range ends {
		if err := limit(e, l.policy.Rate()); err != nil {
			return fmt.Errorf("limit the bandwidth of %s: %w", e.link.Attrs().Name, err)
		}
	}
	// The machine forwards packets from the link. Packets to it arrive on other interfaces, whose
	// settings are the operator's.
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+l.name+"/forwarding", []byte("1"), 0); err != nil {
		return fmt.Errorf("enable forwarding: %w", err)
	}
	// The kernel must add no link-local address, and so no route to all of fe80::/64. Each address
	// there that a program sends to would fill the machine's neighbour table, which all runners
	// share.
	const none = 1 // IN6_ADDR_GEN_MODE_NONE
	if err := l.within.LinkSetIP6AddrGenMode(its, none); err != nil {
		return fmt.Errorf("disable automatic addresses of %s: %w", inside, err)
	}
	// No neighbour discovery, because all neighbours are known, and no multicast group for its
	// addresses. So all packets on the link are the runner's own.
	if err := l.within.LinkSetARPOff(its); err != nil {
		return fmt.Errorf("disable neighbour discovery of %s: %w", inside, err)
	}
	for _, e := range ends {
		if err := e.of.LinkSetUp(e.link); err != nil {
			return fmt.Errorf("bring %s up: %w", e.link.Attrs().Name, err)
		}
	}
	for _, e := range ends {
		if err := settle(e); err != nil {
			return err
		}
	}
	gateway := l.policy.Pool.Gateway()
	if err := connect(ends[0], []netip.Addr{gateway}, []neighbour{{v4, runnerMAC}, {v6, runnerMAC}}, gateway); err != nil {
		return fmt.Errorf("connect the machine's end: %w", err)
	}
	if err := connect(ends[1], []netip.Addr{v4, v6}, []neighbour{{gateway, machineMAC}, {machine6, machineMAC}}, v4); err != nil {
		return fmt.Errorf("connect the runner's end: %w", err)
	}
	if !l.policy.Egress {
		return nil
	}
	routes := []netlink.Route{{LinkIndex: its.Attrs().Index, Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}}
	if forwards6() {
		routes = append(routes, netlink.Route{LinkIndex: its.Attrs().Index, Gw: machine6.AsSlice(), Dst: &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}})
	}
	for _, r := range routes {
		if err := l.within.RouteAdd(&r); err != nil {
			return fmt.Errorf("add the runner's default route: %w", err)
		}
	}
	return nil
}

type end struct {
	of   *netlink.Handle
	link netlink.Link
}

// settle waits until the kernel has seen that both ends are up. Before that it drops packets, and
// adds no IPv6 address.
func settle(e end) error {
	return await(func() (bool, error) {
		link, err := e.of.LinkByIndex(e.link.Attrs().Index)
		return err == nil && link.Attrs().OperState == netlink.OperUp, err
	}, "link %s didn't come up in time", e.link.Attrs().Name)
}

// await polls until done returns true, for changes that the kernel makes asynchronously, mostly
// immediately.
func await(done func() (bool, error), otherwise string, args ...any) error {
	const patience, pause = 2 * time.Second, 500 * time.Microsecond
	for until := time.Now().Add(patience); ; time.Sleep(pause) { //nolint:forbidigo // there is no event for it
		if ok, err := done(); ok || err != nil {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf(otherwise, args...)
		}
	}
}

type neighbour struct {
	at  netip.Addr
	mac net.HardwareAddr
}

// connect adds an end's own addresses, and neighbour entries and routes to its neighbours. IPv4
// packets to a neighbour have source as their source address.
func connect(e end, own []netip.Addr, neighbours []neighbour, source netip.Addr) error {
	index := e.link.Attrs().Index
	for _, a := range own {
		addr := &netlink.Addr{IPNet: hostNetwork(a), Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE}
		if err := e.of.AddrAdd(e.link, addr); err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	for _, n := range neighbours {
		if err := e.of.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: n.at.AsSlice(), HardwareAddr: n.mac}); err != nil {
			return fmt.Errorf("add neighbour %s: %w", n.at, err)
		}
		route := &netlink.Route{LinkIndex: index, Scope: netlink.SCOPE_LINK, Dst: hostNetwork(n.at)}
		if n.at.Is4() {
			route.Src = source.AsSlice()
		}
		if err := e.of.RouteAdd(route); err != nil {
			return fmt.Errorf("add a route to %s: %w", n.at, err)
		}
	}
	return await(func() (bool, error) {
		for _, a := range own {
			routes, err := e.of.RouteGet(a.AsSlice())
			if err != nil || len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
				return false, nil
			}
		}
		return true, nil
	}, "the addresses of link %s didn't get active in time", e.link.Attrs().Name)
}

func hostNetwork(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// limit limits what one end sends, in megabits per second, and reads the limit back.
func limit(e end, mbit int) error {
	rate := uint64(mbit) * 1_000_000 / 8
	burst := max(uint32(rate/250), 32<<10) // 4 ms: the kernel's timer may tick that rarely
	tbf := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: e.link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate,
		Buffer:     netlink.Xmittime(rate, burst),
		Limit:      uint32(rate/20) + burst, // a queue of 50 ms
	}
	if err := e.of.QdiscAdd(tbf); err != nil {
		return fmt.Errorf("set a limit with sch_tbf: %w", err)
	}
	all, err := e.of.QdiscList(e.link)
	if err != nil {
		return err
	}
	for _, q := range all {
		if is, ok := q.(*netlink.Tbf); ok && is.Rate == rate {
			return nil
		}
	}
	return errors.New("the limit was set, but isn't active")
}

func forwards6() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/forwarding")
	return err == nil && len(text) > 0 && text[0] != '0'
}

// removeLink removes a runner's link. It reports whether the link existed and the runner has sent
// nothing over it.
func removeLink(id string) (silent bool, err error) {
	link, err := netlink.LinkByName(network.Name(id))
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find the link of %s: %w", id, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return false, fmt.Errorf("delete link %s: %w", link.Attrs().Name, err)
	}
	received := link.Attrs().Statistics
	return received != nil && received.RxPackets == 0, nil
}
