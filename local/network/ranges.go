package network

import (
	"net/netip"
	"slices"
)

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
