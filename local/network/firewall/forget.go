package firewall

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
)

// addressesOf returns the source addresses that a runner's filter allows; none if it has no filter.
func addressesOf(conn *nftables.Conn, id string) ([]netip.Addr, error) {
	t := &nftables.Table{Family: nftables.TableFamilyNetdev, Name: tableOf(id)}
	rules, err := conn.GetRules(t, &nftables.Chain{Name: chainIn})
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, r := range rules {
		for i := 1; i < len(r.Exprs); i++ {
			from, ok := r.Exprs[i-1].(*expr.Payload)
			if !ok || *from != *load(false, false) && *from != *load(true, false) {
				continue
			}
			if not, ok := r.Exprs[i].(*expr.Cmp); ok && not.Op == expr.CmpOpNeq {
				if a, ok := netip.AddrFromSlice(not.Data); ok {
					all = append(all, a)
				}
			}
		}
	}
	return all, nil
}

// forget makes the kernel stop tracking the connections of addresses. Otherwise it would track a
// UDP conversation for two minutes after its runner has ended, and longer while the other end
// sends. Connections of ended runners would use up the limit of all runners, and packets from the
// other end would reach the next runner with the address. The kernel lists all connections for each
// address: that takes 20 ms of CPU time with 3,000 of them, and 140 ms with 30,000.
func forget(addresses []netip.Addr) error {
	for _, a := range addresses {
		family := netlink.InetFamily(netlink.FAMILY_V4)
		if a.Is6() {
			if !forwards6() { // then it tracks no IPv6 connections
				continue
			}
			family = netlink.FAMILY_V6
		}
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, oneEnd(a)); err != nil {
			return fmt.Errorf("forget the connections of %s: %w", a, err)
		}
	}
	return nil
}

// A oneEnd matches the connections from or to an address.
type oneEnd netip.Addr

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (o oneEnd) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	a := netip.Addr(o).AsSlice()
	return f.Forward.SrcIP.Equal(a) || f.Forward.DstIP.Equal(a)
}
