package firewall

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
)

func rule(parts ...[]expr.Any) (all []expr.Any) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// is matches if register 1 holds data; isNot matches if it holds anything else.
func is(data []byte) *expr.Cmp    { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }
func isNot(data []byte) *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: data} }

func meta(key expr.MetaKey) *expr.Meta { return &expr.Meta{Key: key, Register: 1} }

func ip(v6 bool) []expr.Any {
	ethernet := uint16(unix.ETH_P_IP)
	if v6 {
		ethernet = unix.ETH_P_IPV6
	}
	return []expr.Any{meta(expr.MetaKeyPROTOCOL), is(binary.BigEndian.AppendUint16(nil, ethernet))}
}

// load loads the source or destination address of a packet. The offsets are those of the IPv4 and
// IPv6 headers (RFC 791, RFC 8200).
func load(v6, destination bool) *expr.Payload {
	p := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}
	if v6 {
		p.Offset, p.Len = 8, 16
	}
	if destination {
		p.Offset += p.Len
	}
	return p
}

func notFrom(a netip.Addr) []expr.Any {
	return rule(ip(a.Is6()), []expr.Any{load(a.Is6(), false), isNot(a.AsSlice())})
}

func to(a netip.Addr) []expr.Any {
	return rule(ip(a.Is6()), []expr.Any{load(a.Is6(), true), is(a.AsSlice())})
}

func within(s set) []expr.Any {
	v6 := s.KeyType.Bytes == 16
	return rule(ip(v6), []expr.Any{load(v6, true), &expr.Lookup{SourceRegister: 1, SetName: s.Name, IsDestRegSet: false}})
}

func transport(protocol byte) []expr.Any {
	return []expr.Any{meta(expr.MetaKeyL4PROTO), is([]byte{protocol})}
}

// port matches a port of TCP or UDP packets. The rule must match the protocol before.
func port(destination bool, n uint16) []expr.Any {
	p := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2}
	if destination {
		p.Offset = 2
	}
	return []expr.Any{p, is(binary.BigEndian.AppendUint16(nil, n))}
}

// flags matches TCP segments whose flags in mask equal value, or don't.
func flags(mask, value byte, equal bool) []expr.Any {
	compare := is([]byte{value})
	if !equal {
		compare = isNot([]byte{value})
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		compare,
	}
}

// icmpType matches ICMP or ICMPv6 messages of one type. The rule must match the protocol before.
func icmpType(n byte) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1}, is([]byte{n})}
}

func state(bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		isNot(make([]byte, 4)),
	}
}

func link(key expr.MetaKey) []expr.Any {
	return []expr.Any{meta(key), is([]byte(network.LinkPrefix))}
}

func drop() []expr.Any   { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }
func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// jump continues in a chain and never returns from it: nftables calls this goto.
func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

func keyType(v6 bool) nftables.SetDatatype {
	if v6 {
		return nftables.TypeIP6Addr
	}
	return nftables.TypeIPAddr
}

func addresses(name string, v6 bool, ranges []network.Range) set {
	s := set{Set: nftables.Set{Name: name, Constant: true, Interval: true, KeyType: keyType(v6)}}
	for _, r := range ranges {
		s.elements = append(s.elements, nftables.SetElement{Key: r.From.AsSlice()})
		if end := r.To.Next(); end.IsValid() { // else the range ends at the last address
			s.elements = append(s.elements, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	return s
}

// renewTimeout renews the timeout of the destination address in a set.
func renewTimeout(s set) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: 1, SetName: s.Name, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), Timeout: network.LeaseTime}}
}

func named(name string, v6 bool) set {
	return set{Set: nftables.Set{Name: name, HasTimeout: true, Dynamic: true, Size: maxNamed, KeyType: keyType(v6)}}
}
