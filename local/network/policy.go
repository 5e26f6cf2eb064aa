// Package network defines what a runner on this machine may reach: the addresses that are always
// denied, those that an environment allows, and the addresses of the runners themselves. It only
// computes. Package firewall makes links and packet filters, and package access answers DNS queries
// and maps runners' ports.
package network

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A Pool is the two networks that runners' addresses are from.
type Pool struct {
	V4 netip.Prefix `json:"v4"`
	V6 netip.Prefix `json:"v6"`
}

// Default pools: networks that other software rarely uses.
var (
	DefaultPool4 = netip.MustParsePrefix("10.213.0.0/16")
	DefaultPool6 = netip.MustParsePrefix("fd52:6f63:6b70:6f6f::/64")
)

// most4 is the longest prefix of an IPv4 pool. A pool needs an address for each of the machine's
// ranges of user ids: these are used in turn, also by runners without a network.
const most4 = 16

// Check returns an error unless both are private networks that are large enough for a machine's
// runners.
func (p Pool) Check() error {
	switch {
	case !p.V4.IsValid() || !p.V4.Addr().Is4() || p.V4.Masked() != p.V4 || p.V4.Bits() < 8 || p.V4.Bits() > most4 || !within(p.V4, private4):
		return fmt.Errorf("%s must be a private IPv4 network with a prefix of 8 to %d bits", p.V4, most4)
	case !p.V6.IsValid() || !p.V6.Addr().Is6() || p.V6.Addr().Is4In6() || p.V6.Masked() != p.V6 || p.V6.Bits() > 112 || !within(p.V6, private6):
		return fmt.Errorf("%s must be a unique local IPv6 network (fc00::/7) with a prefix of at most 112 bits", p.V6)
	}
	return nil
}

// Gateway returns the machine's IPv4 address on runners' links.
func (p Pool) Gateway() netip.Addr { return add(p.V4.Addr(), 1) }

// Addresses returns the addresses of the runner with a range of user ids, if the pool is large enough.
func (p Pool) Addresses(slot int) (v4, v6 netip.Addr, err error) {
	if slot < 0 || slot >= 1<<(32-p.V4.Bits())-3 { // minus the network, gateway and broadcast addresses
		return v4, v6, fmt.Errorf("the address pool %s is used up: set a larger --network-pool4", p.V4)
	}
	return add(p.V4.Addr(), uint32(slot)+2), add(p.V6.Addr(), uint32(slot)+2), nil
}

// add adds n to an address. The caller ensures that the last 32 bits don't overflow.
func add(to netip.Addr, n uint32) netip.Addr {
	b := to.AsSlice()
	for i := len(b) - 1; n > 0; i-- {
		n += uint32(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	sum, _ := netip.AddrFromSlice(b)
	return sum
}

// An Offer is the network that the operator offers to runners. Environments can't change it.
type Offer struct {
	Pool      Pool           `json:"pool"`
	Permit    []netip.Prefix `json:"permit,omitempty"` // private networks that runners may reach
	Bandwidth int            `json:"bandwidth"`        // limit per runner and direction, in megabits per second
}

// A Request is what an environment requests. The zero Request is a link that no packet passes.
type Request struct {
	Egress    bool           `json:"egress,omitempty"` // it may open connections and resolve names
	Narrow    bool           `json:"narrow,omitempty"` // only to Allow and to the addresses of its allowed names
	Allow     []netip.Prefix `json:"allow,omitempty"`
	Ports     []uint16       `json:"ports,omitempty"`     // TCP ports that the machine may connect to
	Bandwidth int            `json:"bandwidth,omitempty"` // 0 means the Offer's
}

// A Policy is what one runner may reach, and on which ports it may be reached.
type Policy struct {
	Offer   `json:"offer"`
	Request `json:"wish"`
	Slot    int // number of the runner's range of user ids
}

// Bounds of a policy.
const (
	MaxAllow     = 64
	MaxPermit    = 64
	MaxPorts     = 64
	MaxBandwidth = 100_000
)

// Check returns an error for the first invalid field of an offer.
func (o Offer) Check() error {
	if err := o.Pool.Check(); err != nil {
		return err
	}
	if len(o.Permit) > MaxPermit {
		return fmt.Errorf("more than %d permitted networks", MaxPermit)
	}
	for _, prefix := range o.Permit {
		if err := Permissible(prefix); err != nil {
			return err
		}
	}
	if o.Bandwidth < 1 || o.Bandwidth > MaxBandwidth {
		return fmt.Errorf("the bandwidth must be 1 to %[2]d megabits per second, not %[1]d", o.Bandwidth, MaxBandwidth)
	}
	return nil
}

// Check returns an error for a request that no offer can satisfy.
func (w Request) Check() error {
	if len(w.Allow) > MaxAllow || len(w.Ports) > MaxPorts {
		return fmt.Errorf("there may be at most %d allowed networks and %d ports", MaxAllow, MaxPorts)
	}
	if len(w.Allow) > 0 && !w.Narrow || w.Narrow && !w.Egress {
		return errors.New("allowed networks need narrow egress")
	}
	for _, prefix := range w.Allow {
		if err := checkPrefix(prefix); err != nil {
			return err
		}
	}
	for i, port := range w.Ports {
		if port == 0 || slices.Contains(w.Ports[:i], port) {
			return fmt.Errorf("port %d is invalid or a duplicate", port)
		}
	}
	if w.Bandwidth < 0 || w.Bandwidth > MaxBandwidth {
		return fmt.Errorf("the bandwidth must be 1 to %[2]d megabits per second, not %[1]d", w.Bandwidth, MaxBandwidth)
	}
	return nil
}

// Rate returns the runner's bandwidth in each direction, in megabits per second.
func (p Policy) Rate() int { return cmp.Or(p.Request.Bandwidth, p.Offer.Bandwidth) }

// Check returns an error for a policy that can't be enforced.
func (p Policy) Check() error {
	if err := errors.Join(p.Offer.Check(), p.Request.Check()); err != nil {
		return err
	}
	if p.Rate() > p.Offer.Bandwidth {
		return fmt.Errorf("a bandwidth of %d megabits per second exceeds the limit of %d for one runner", p.Rate(), p.Offer.Bandwidth)
	}
	_, _, err := p.Pool.Addresses(p.Slot)
	return err
}

// A Lease lets a runner reach addresses that a name resolved to, for [LeaseTime] after the last
// answer or packet.
type Lease struct {
	Addresses []netip.Addr `json:"addresses"`
}

// LeaseTime is long because programs keep addresses and connections for longer than a name's TTL.
const LeaseTime = time.Hour

// MaxLease is the largest number of addresses in one answer.
const MaxLease = 64

// Check returns an error for a lease with no addresses, too many, or invalid ones.
func (l Lease) Check() error {
	if len(l.Addresses) == 0 || len(l.Addresses) > MaxLease {
		return fmt.Errorf("a lease must have 1 to %[2]d addresses, not %[1]d", len(l.Addresses), MaxLease)
	}
	for _, a := range l.Addresses {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
			return fmt.Errorf("%s isn't a valid address for a lease", a)
		}
	}
	return nil
}

// checkPrefix returns an error unless p is a valid network whose bits after the prefix are 0.
func checkPrefix(p netip.Prefix) error {
	if !p.IsValid() || p.Masked() != p || p.Addr().Is4In6() {
		return fmt.Errorf("%s must be a network with its prefix length, such as 10.0.0.0/8", p)
	}
	return nil
}

// Permissible returns an error for a network that an operator can't permit. Only private networks
// can be permitted: no other denied network leads anywhere useful.
func Permissible(p netip.Prefix) error {
	if err := checkPrefix(p); err != nil {
		return err
	}
	if !within(p, private4) && !within(p, private6) {
		return fmt.Errorf("%s must be within %s", p, join(append(private4[:len(private4):len(private4)], private6...)))
	}
	return nil
}

// Name returns the name of a runner's link, derived from its cgroup or id; it has at most 15 bytes.
// The name of the runner's table contains it.
func Name(of string) string {
	sum := sha256.Sum256([]byte(of))
	return LinkPrefix + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:8])[:12])
}

// Names of what networks of runners have on the machine.
const (
	LinkPrefix  = "rp-"       // begins the names of their links
	TablePrefix = "rockpool-" // begins the names of their tables of the packet filter
	SharedTable = "rockpool"  // the table that they share
)

func join(all []netip.Prefix) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

// prefixes parses networks. It panics if one is invalid.
func prefixes(all ...string) []netip.Prefix {
	parsed := make([]netip.Prefix, len(all))
	for i, text := range all {
		parsed[i] = netip.MustParsePrefix(text)
	}
	return parsed
}

// Private networks: an operator may permit them, and pools must be within them.
var (
	private4 = prefixes("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15")
	private6 = prefixes("fc00::/7")
)

// denied are the networks that no runner reaches: those of IANA's special-purpose registries, and
// addresses of clouds' services for their machines.
var denied = append(prefixes(
	"0.0.0.0/8",            // this network
	"127.0.0.0/8",          // loopback
	"169.254.0.0/16",       // link-local, including clouds' metadata
	"168.63.129.16/32",     // Azure's services, outside of private networks
	"192.0.0.0/24",         // IETF protocols, Oracle's metadata
	"192.0.2.0/24",         // documentation
	"192.88.99.0/24",       // relays of 6to4
	"198.51.100.0/24",      // documentation
	"203.0.113.0/24",       // documentation
	"224.0.0.0/3",          // multicast, reserved, broadcast
	"::/3",                 // loopback, IPv4-mapped, NAT64 (64:ff9b::/96 and 64:ff9b:1::/48), discard
	"2001::/23",            // IETF protocols, Teredo, ORCHID
	"2001:db8::/32",        // documentation
	"2002::/16",            // 6to4
	"3fff::/20",            // documentation
	"4000::/2", "8000::/1", // not assigned; unique local, link-local and multicast
), private4...)

// A Range is the addresses From to To, both included.
type Range struct{ From, To netip.Addr }

// Ranges returns the addresses of one family that prefixes cover, as disjoint ranges in order.
func Ranges(of []netip.Prefix, v6 bool) []Range {
	var all []Range
	for _, p := range of {
		if p.Addr().Is6() == v6 {
			all = append(all, Range{p.Addr(), last(p)})
		}
	}
	slices.SortFunc(all, func(a, b Range) int { return a.From.Compare(b.From) })
	var merged []Range
	for _, r := range all {
		if n := len(merged) - 1; n >= 0 && (r.From.Compare(merged[n].To) <= 0 || r.From == merged[n].To.Next()) {
			merged[n].To = slices.MaxFunc([]netip.Addr{merged[n].To, r.To}, netip.Addr.Compare)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		b[i] |= byte(0xff >> min(8, max(0, p.Bits()-8*i)))
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Denied returns the always denied addresses of one family.
func Denied(v6 bool) []Range { return Ranges(denied, v6) }

// Reachable reports whether a runner may ever reach an address, given the permitted networks.
// Addresses of the machine itself are denied later, by the packet filter.
func Reachable(a netip.Addr, pool Pool, permit []netip.Prefix) bool {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" || pool.V4.Contains(a) || pool.V6.Contains(a) {
		return false
	}
	if contains(permit, a) {
		return true
	}
	return !contains(denied, a)
}

// OnlyDenied reports whether a runner can reach no address of an allowed network.
func OnlyDenied(p netip.Prefix, pool Pool, permit []netip.Prefix) bool {
	in := func(ranges []Range) bool {
		return slices.ContainsFunc(ranges, func(r Range) bool { return r.From.Compare(p.Addr()) <= 0 && last(p).Compare(r.To) <= 0 })
	}
	v6 := p.Addr().Is6()
	if in(Ranges([]netip.Prefix{pool.V4, pool.V6}, v6)) {
		return true
	}
	permitted := slices.ContainsFunc(permit, func(q netip.Prefix) bool { return q.Overlaps(p) })
	return !permitted && in(Denied(v6))
}

func contains(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
}

// within reports whether one of the networks contains all of p.
func within(p netip.Prefix, all []netip.Prefix) bool {
	return slices.ContainsFunc(all, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
}
