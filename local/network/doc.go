// Package network says what a runner on this machine may reach: which
// addresses never, which an environment names, and by which of a machine's
// addresses runners are known. It touches nothing; package fence makes links
// and packet filters of it, package resolver answers the runners' questions
// for names, and package ports maps their ports to the machine's.
package network

import (
	"encoding/base32"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"crypto/sha256"
)

// A Pool is where runners' addresses come from.
type Pool struct {
	V4 netip.Prefix `json:"v4"`
	V6 netip.Prefix `json:"v6"`
}

// Pools that other software rarely takes.
var (
	DefaultPool4 = netip.MustParsePrefix("10.213.0.0/16")
	DefaultPool6 = netip.MustParsePrefix("fd52:6f63:6b70:6f6f::/64")
)

// Check returns an error unless both are private ranges that can hold a runner.
func (p Pool) Check() error {
	switch {
	case !p.V4.IsValid() || !p.V4.Addr().Is4() || p.V4.Masked() != p.V4 || p.V4.Bits() < 8 || p.V4.Bits() > 29 || !within(p.V4, private4):
		return fmt.Errorf("%s isn't a private IPv4 network of 8 to 29 bits", p.V4)
	case !p.V6.IsValid() || !p.V6.Addr().Is6() || p.V6.Addr().Is4In6() || p.V6.Masked() != p.V6 || p.V6.Bits() > 112 || !within(p.V6, private6):
		return fmt.Errorf("%s isn't a unique local IPv6 network (fc00::/7) of at most 112 bits", p.V6)
	}
	return nil
}

// Gateway is the machine as runners see it.
func (p Pool) Gateway() netip.Addr { return add(p.V4.Addr(), 1) }

// Addresses returns those of the runner with a range of user ids, and an error
// where the pool has none left.
func (p Pool) Addresses(slot int) (v4, v6 netip.Addr, err error) {
	if slot < 0 || slot >= 1<<(32-p.V4.Bits())-3 { // without the network's own, the gateway's and the broadcast address
		return v4, v6, fmt.Errorf("the address pool %s has none for another runner", p.V4)
	}
	return add(p.V4.Addr(), uint32(slot)+2), add(p.V6.Addr(), uint32(slot)+2), nil
}

// add adds to an address; the caller sees to it that its last 32 bits suffice.
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

// A Policy is what one runner may reach, and is reached at. The zero Policy is
// no network at all.
type Policy struct {
	Pool      Pool           `json:"pool"`
	Slot      int            `json:"slot"`             // the number of the runner's range of user ids
	Egress    bool           `json:"egress,omitempty"` // it may begin connections, and ask for names
	Narrow    bool           `json:"narrow,omitempty"` // only to what Allow has, and to what Permit is called with
	Allow     []netip.Prefix `json:"allow,omitempty"`
	Permit    []netip.Prefix `json:"permit,omitempty"` // private networks that the operator doesn't keep from runners
	Ports     []uint16       `json:"ports,omitempty"`  // TCP ports at which the machine may reach it
	Bandwidth int            `json:"bandwidth"`        // megabits a second, each direction
}

// Bounds of a policy.
const (
	MaxAllow     = 64
	MaxPermit    = 64
	MaxPorts     = 64
	MaxBandwidth = 100_000
)

// Check returns an error for a policy that can't be kept.
func (p *Policy) Check() error {
	if err := p.Pool.Check(); err != nil {
		return err
	}
	if _, _, err := p.Pool.Addresses(p.Slot); err != nil {
		return err
	}
	if len(p.Allow) > MaxAllow || len(p.Permit) > MaxPermit || len(p.Ports) > MaxPorts {
		return fmt.Errorf("more than %d allowed networks, %d permitted ones or %d ports", MaxAllow, MaxPermit, MaxPorts)
	}
	if len(p.Allow) > 0 && !p.Narrow {
		return errors.New("allowed networks without a narrow policy")
	}
	for _, prefix := range p.Allow {
		if err := checkPrefix(prefix); err != nil {
			return err
		}
	}
	for _, prefix := range p.Permit {
		if err := Permissible(prefix); err != nil {
			return err
		}
	}
	for _, port := range p.Ports {
		if port == 0 {
			return errors.New("there is no port 0")
		}
	}
	if p.Bandwidth < 1 || p.Bandwidth > MaxBandwidth {
		return fmt.Errorf("a bandwidth of %d isn't 1 to %d Mbit/s", p.Bandwidth, MaxBandwidth)
	}
	return nil
}

func checkPrefix(p netip.Prefix) error {
	if !p.IsValid() || p.Masked() != p || p.Addr().Is4In6() {
		return fmt.Errorf("%s isn't a network address with its length", p)
	}
	return nil
}

// Permissible returns an error for a network that an operator can't permit: only
// private ones, since nothing else that is denied leads to anything useful.
func Permissible(p netip.Prefix) error {
	if err := checkPrefix(p); err != nil {
		return err
	}
	if !within(p, private4) && !within(p, private6) {
		return fmt.Errorf("%s isn't within %s", p, join(append(private4[:len(private4):len(private4)], private6...)))
	}
	return nil
}

// Name returns the name of what belongs to a runner's network, from the
// runner's id alone: of its link, which may have 15 bytes, and in that of its
// table.
func Name(id string) string {
	sum := sha256.Sum256([]byte(id))
	return LinkPrefix + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:8])[:12])
}

// LinkPrefix is how the names of all runners' links begin.
const LinkPrefix = "rp-"

func join(all []netip.Prefix) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}
