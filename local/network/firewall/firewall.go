// Package firewall connects a sandbox's network namespace to the machine by a link, and enforces a
// [network.Policy] by a packet filter. Only rockpool-sandbox calls it.
//
// A link is a pair of virtual interfaces. The machine's end has its own table (family netdev),
// which is read back before either end is up: everything that the runner sends passes it first.
// Rules that all runners share are in the table "rockpool" (family inet). No other table, chain or
// rule is read or changed, and no setting of an interface that isn't a runner's.
//
// Everything of a runner can be found and removed by its id alone.
package firewall

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
)

// Make connects the network namespace of a process. It returns nil only after all rules were read
// back. After an error something may be left for Remove. After ErrUnread a retry can succeed.
func Make(id string, pid int, p network.Policy) error {
	if err := p.Check(); err != nil {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	rules, err := rulesOf(id, p)
	if err != nil {
		return err
	}
	unlock, err := lockShared(unix.LOCK_SH) // until the own table exists: then Remove keeps the shared one
	if err != nil {
		return err
	}
	defer unlock()
	if err := ensureShared(conn); err != nil {
		return err
	}
	// The filter's chain names the link, so the link comes first. It is down until raise.
	l, err := makeLink(id, pid, p)
	if err != nil {
		return err
	}
	defer l.close()
	err = rules.install(conn)
	// The kernel can't reject packets in this family.
	if errors.Is(err, unix.ENOENT) {
		rules = rules.silent()
		err = rules.install(conn)
	}
	if err != nil {
		return fmt.Errorf("install the packet filter: %w", err)
	}
	unlock()
	if err := rules.verify(conn); err != nil {
		return fmt.Errorf("read the packet filter back: %w", err)
	}
	return l.raise()
}

// Verify returns an error unless all rules of a runner are as they were made: ErrChanged if they
// certainly aren't, ErrUnread if that is unknown.
func Verify(id string, p network.Policy) error {
	if err := p.Check(); err != nil {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	rules, err := rulesOf(id, p)
	if err != nil {
		return err
	}
	own := rules.verify(conn)
	if errors.Is(own, ErrChanged) && rules.silent().verify(conn) == nil {
		own = nil
	}
	return errors.Join(shared().verify(conn), own)
}

// lockShared locks the shared table of this network namespace, for all servers. The locked file is one of the
// namespace, and only root can open it.
func lockShared(how int) (unlock func(), err error) {
	f, err := os.Open("/proc/sys/net/ipv4/tcp_fastopen_key")
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock the runners' common packet filter: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

// removeShared removes the shared table if no runner has a table. It doesn't wait for the lock: the
// holder is a Make, whose runner's Remove comes later, or a removeShared, which looks again.
func removeShared(conn *nftables.Conn) error {
	for {
		if unused, err := sharedUnused(conn); err != nil || !unused {
			return err
		}
		unlock, err := lockShared(unix.LOCK_EX | unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
		if err != nil {
			return err
		}
		unused, err := sharedUnused(conn)
		if err == nil && unused {
			err = shared().remove(conn)
		}
		unlock()
		if err != nil {
			return err
		}
	}
}

// sharedUnused reports whether the shared table exists, but no runner's.
func sharedUnused(conn *nftables.Conn) (unused bool, err error) {
	tables, err := conn.ListTables()
	for _, t := range tables {
		if strings.HasPrefix(t.Name, network.TablePrefix) {
			return false, err
		}
		unused = unused || t.Name == network.SharedTable && t.Family == nftables.TableFamilyINet
	}
	return unused, err
}

// ensureShared ensures that the table that all runners share exists. Other servers may do the same
// concurrently; the last one leaves it complete.
func ensureShared(conn *nftables.Conn) error {
	rules := shared()
	if rules.verify(conn) == nil {
		return nil
	}
	if err := rules.install(conn); err != nil {
		return fmt.Errorf("install the runners' common packet filter: %w", err)
	}
	if err := rules.verify(conn); err != nil {
		return fmt.Errorf("read the runners' common packet filter back: %w", err)
	}
	return nil
}

// Lease lets a runner with a narrow policy reach addresses for network.LeaseTime. Always denied
// addresses stay denied.
func Lease(id string, l network.Lease) error {
	if err := l.Check(); err != nil {
		return err
	}
	return lease(id, l.Addresses, network.LeaseTime)
}

// lease adds addresses to the sets of a runner's names, with a timeout.
func lease(id string, addresses []netip.Addr, within time.Duration) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	t := &nftables.Table{Family: nftables.TableFamilyNetdev, Name: tableOf(id)}
	for _, v6 := range []bool{false, true} {
		s := named(setNamed4, false)
		if v6 {
			s = named(setNamed6, true)
		}
		s.Table = t
		var elements []nftables.SetElement
		for _, a := range addresses {
			if a.Is6() == v6 {
				elements = append(elements, nftables.SetElement{Key: a.AsSlice(), Timeout: within})
			}
		}
		if len(elements) == 0 {
			continue
		}
		if err := conn.SetAddElements(&s.Set, elements); err != nil {
			return err
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("lease addresses: %w", err)
	}
	return nil
}

// Remove removes everything that Make made for a runner, and makes the kernel forget its
// connections. Nothing left is success, and so is a kernel without packet filters. The filter is
// removed last, because it contains the runner's addresses.
func Remove(id string) error {
	silent, err := removeLink(id)
	if err != nil {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	rules := ruleset{family: nftables.TableFamilyNetdev, name: tableOf(id)}
	there, err := rules.exists(conn)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return err
	}
	if there && !silent {
		addresses, err := addressesOf(conn, id)
		if err != nil {
			return fmt.Errorf("read the addresses of %s: %w", id, err)
		}
		if err := forget(addresses); err != nil {
			return err
		}
	}
	if there {
		if err := rules.remove(conn); err != nil {
			return err
		}
	}
	return removeShared(conn)
}

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

func (o oneEnd) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	a := netip.Addr(o).AsSlice()
	return f.Forward.SrcIP.Equal(a) || f.Forward.DstIP.Equal(a)
}
