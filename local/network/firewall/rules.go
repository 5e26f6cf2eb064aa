package firewall

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
)

// Limits per runner.
const (
	maxConnections = 1024 // connections that the kernel tracks concurrently
	questions      = 200  // DNS queries per second, and TCP connections per second for them
	maxNamed       = 4096 // addresses of names in its set
)

// maxTogether is the limit of tracked connections of all runners. It is an eighth of the kernel's
// own limit on a machine with at least 4 GiB, and half of it with 1 GiB.
const maxTogether = 1 << 15

// Names of chains and sets.
const (
	chainIn, chainNarrow, chainProtocols, chainRefused, chainTogether = "from", "narrow", "protocols", "refused", "together"
	setNamed4, setNamed6                                              = "named4", "named6"
)

// rulesOf returns the filter of one runner's link. It sees each packet as the runner sent it,
// before connection tracking and before destinations are rewritten.
func rulesOf(id string, p network.Policy) (ruleset, error) {
	v4, v6, err := p.Pool.Addresses(p.Slot)
	if err != nil {
		return ruleset{}, err
	}
	denied4, denied6 := addresses("denied4", false, network.Denied(false)), addresses("denied6", true, network.Denied(true))
	runners4, runners6 := addresses("runners4", false, network.Ranges([]netip.Prefix{p.Pool.V4}, false)), addresses("runners6", true, network.Ranges([]netip.Prefix{p.Pool.V6}, true))
	permit4, permit6 := addresses("permit4", false, network.Ranges(p.Permit, false)), addresses("permit6", true, network.Ranges(p.Permit, true))
	allow4, allow6 := addresses("allow4", false, network.Ranges(p.Allow, false)), addresses("allow6", true, network.Ranges(p.Allow, true))
	named4, named6 := named(setNamed4, false), named(setNamed6, true)

	// The first rules drop forged source addresses: the resolver identifies a runner by its
	// address.
	in := [][]expr.Any{rule(notFrom(v4), drop()), rule(notFrom(v6), drop())}
	for _, n := range p.Ports { // answers to connections, but no connections of its own
		in = append(in, rule(to(p.Pool.Gateway()), transport(unix.IPPROTO_TCP), port(false, n), flags(tcpSYN|tcpACK, tcpSYN, false), accept()))
	}
	// A runner may use TCP, UDP and ping: 8 and 128 are the types of echo requests.
	protocols := [][]expr.Any{
		rule(transport(unix.IPPROTO_TCP), accept()),
		rule(transport(unix.IPPROTO_UDP), accept()),
		rule(ip(false), transport(unix.IPPROTO_ICMP), icmpType(8), accept()),
		rule(ip(true), transport(unix.IPPROTO_ICMPV6), icmpType(128), accept()),
		jump(chainRefused),
	}
	refused := [][]expr.Any{ // rejected instead of dropped, so that a program needn't wait
		rule(transport(unix.IPPROTO_TCP), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}),
		{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}},
	}
	var narrow [][]expr.Any
	if p.Narrow {
		for _, s := range []set{allow4, allow6} {
			narrow = append(narrow, rule(within(s), jump(chainProtocols)))
		}
		for _, s := range []set{named4, named6} {
			narrow = append(narrow, rule(within(s), renewTimeout(s), jump(chainProtocols)))
		}
		narrow = append(narrow, jump(chainRefused))
	} else {
		narrow = append(narrow, rule(jump(chainProtocols)))
	}
	if p.Egress {
		limit := []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: questions, Unit: expr.LimitTimeSecond, Burst: questions, Over: true}}
		dns := rule(to(p.Pool.Gateway()), transport(unix.IPPROTO_UDP), port(true, 53))
		dnsTCP := rule(to(p.Pool.Gateway()), transport(unix.IPPROTO_TCP), port(true, 53))
		in = append(in,
			rule(dns, limit, drop()),
			rule(dns, accept()),
			rule(dnsTCP, flags(tcpSYN|tcpACK, tcpSYN, true), limit, drop()),
			rule(dnsTCP, accept()),
			// The machine's own addresses, as of now, and broadcast addresses of its networks.
			[]expr.Any{&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, isNot([]byte{unix.RTN_UNICAST, 0, 0, 0}), jump(chainRefused)[0]},
			// Runners don't reach each other, even if a permitted network contains the pool.
			rule(within(runners4), jump(chainRefused)),
			rule(within(runners6), jump(chainRefused)),
			// These come before the denied networks, which contain every network that can be
			// permitted.
			rule(within(permit4), jump(chainNarrow)),
			rule(within(permit6), jump(chainNarrow)),
			rule(within(denied4), jump(chainRefused)),
			rule(within(denied6), jump(chainRefused)),
			rule(jump(chainNarrow)),
		)
	}
	policy := nftables.ChainPolicyDrop
	return ruleset{
		family: nftables.TableFamilyNetdev, name: tableOf(id),
		sets: []set{denied4, denied6, runners4, runners6, permit4, permit6, allow4, allow6, named4, named6},
		chains: []chain{
			{nftables.Chain{Name: chainRefused}, refused},
			{nftables.Chain{Name: chainProtocols}, protocols},
			{nftables.Chain{Name: chainNarrow}, narrow},
			{nftables.Chain{
				Name: chainIn, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookIngress, Priority: nftables.ChainPriorityFilter,
				Policy: &policy, Device: network.Name(id),
			}, in},
		},
	}, nil
}

// silent returns the filter for a kernel without CONFIG_NFT_REJECT_NETDEV, such as Debian's: it
// drops packets instead of rejecting them.
func (r ruleset) silent() ruleset {
	r.chains = slices.Clone(r.chains)
	for i := range r.chains {
		if r.chains[i].Name == chainRefused {
			r.chains[i].rules = [][]expr.Any{drop()}
		}
	}
	return r
}

const tcpSYN, tcpACK = 0x02, 0x10

func tableOf(id string) string { return network.TablePrefix + network.Name(id) }

// shared returns the rules that all runners share. Only the machine may open connections to
// runners. The tracked connections of each runner, those to the machine's name server included, and
// of all runners are limited. Outside, runners appear with the machine's address.
func shared() ruleset {
	connections := set{Set: nftables.Set{Name: "connections", Dynamic: true, Size: 1 << 16, KeyType: nftables.TypeIFIndex}}
	policy := nftables.ChainPolicyAccept
	begun := rule(link(expr.MetaKeyIIFNAME), state(expr.CtStateBitNEW))
	counted := [][]expr.Any{
		rule(begun, []expr.Any{
			meta(expr.MetaKeyIIF),
			&expr.Dynset{SrcRegKey: 1, SetName: connections.Name, Operation: uint32(unix.NFT_DYNSET_OP_ADD), Exprs: []expr.Any{&expr.Connlimit{Count: maxConnections, Flags: expr.NFT_CONNLIMIT_F_INV}}},
		}, drop()),
		rule(begun, jump(chainTogether)),
	}
	return ruleset{
		family: nftables.TableFamilyINet, name: network.SharedTable,
		sets: []set{connections},
		chains: []chain{
			{nftables.Chain{Name: chainTogether}, [][]expr.Any{rule([]expr.Any{&expr.Connlimit{Count: maxTogether, Flags: expr.NFT_CONNLIMIT_F_INV}}, drop())}},
			{nftables.Chain{Name: "forward", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &policy}, append([][]expr.Any{
				rule(link(expr.MetaKeyOIFNAME), state(expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), accept()),
				rule(link(expr.MetaKeyOIFNAME), drop()),
			}, counted...)},
			{nftables.Chain{Name: "input", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter, Policy: &policy}, counted},
			{nftables.Chain{Name: "outside", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource, Policy: &policy}, [][]expr.Any{
				rule(link(expr.MetaKeyIIFNAME), []expr.Any{&expr.Masq{}}),
			}},
		},
	}
}
