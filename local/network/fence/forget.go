package fence

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
)

// addressesOf returns the addresses that a runner may send from, as its filter
// has them. A runner without a filter has none.
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

// forget has the kernel stop following the connections of addresses. Otherwise it
// would follow a UDP conversation for two minutes after its runner is gone, and for
// longer while the other end speaks. Connections of runners that are gone would use
// up what all runners have together, and what the other end says would reach the
// next runner with the address. The kernel lists all connections for each address: 20 ms
// of processor time with 3,000 of them, 140 ms with 30,000.
func forget(addresses []netip.Addr) error {
	for _, a := range addresses {
		family := netlink.InetFamily(netlink.FAMILY_V4)
		if a.Is6() {
			if !forwards6() { // then it follows none
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

// A oneEnd matches the connections from an address and to it.
type oneEnd netip.Addr

func (o oneEnd) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	a := netip.Addr(o).AsSlice()
	return f.Forward.SrcIP.Equal(a) || f.Forward.DstIP.Equal(a)
}
