// Package network says what a runner on this machine may reach: which
// addresses never, which an environment names, and by which of a machine's
// addresses runners are known. It touches nothing; package fence makes links
// and packet filters of it, package resolver answers the runners' questions
// for names, and package ports maps their ports to the machine's.
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

// An Offer is what the operator lets runners have. It isn't an environment's to
// choose.
type Offer struct {
	Pool      Pool           `json:"pool"`
	Permit    []netip.Prefix `json:"permit,omitempty"` // private networks that aren't kept from runners
	Bandwidth int            `json:"bandwidth"`        // most of one runner, in megabits a second, each direction
}

// A Wish is what an environment asks for. The zero Wish is a link that nothing
// goes through.
type Wish struct {
	Egress    bool           `json:"egress,omitempty"` // it may begin connections, and ask for names
	Narrow    bool           `json:"narrow,omitempty"` // only to what Allow has, and to what names it may ask for stand for
	Allow     []netip.Prefix `json:"allow,omitempty"`
	Ports     []uint16       `json:"ports,omitempty"`     // TCP ports at which the machine may reach it
	Bandwidth int            `json:"bandwidth,omitempty"` // 0: the Offer's
}

// A Policy is what one runner may reach, and is reached at.
type Policy struct {
	Offer `json:"offer"`
	Wish  `json:"wish"`
	Slot  int // the number of the runner's range of user ids
}

// Bounds of a policy.
const (
	MaxAllow     = 64
	MaxPermit    = 64
	MaxPorts     = 64
	MaxBandwidth = 100_000
)

// Check returns an error for an offer that can't be made.
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
		return fmt.Errorf("a bandwidth of %d isn't 1 to %d megabits a second", o.Bandwidth, MaxBandwidth)
	}
	return nil
}

// Check returns an error for a wish that nobody can grant.
func (w Wish) Check() error {
	if len(w.Allow) > MaxAllow || len(w.Ports) > MaxPorts {
		return fmt.Errorf("more than %d allowed networks or %d ports", MaxAllow, MaxPorts)
	}
	if len(w.Allow) > 0 && !w.Narrow || w.Narrow && !w.Egress {
		return errors.New("allowed networks that nothing is kept to")
	}
	for _, prefix := range w.Allow {
		if err := checkPrefix(prefix); err != nil {
			return err
		}
	}
	for i, port := range w.Ports {
		if port == 0 || slices.Contains(w.Ports[:i], port) {
			return fmt.Errorf("port %d is none, or named twice", port)
		}
	}
	if w.Bandwidth < 0 || w.Bandwidth > MaxBandwidth {
		return fmt.Errorf("a bandwidth of %d isn't 1 to %d megabits a second", w.Bandwidth, MaxBandwidth)
	}
	return nil
}

// Rate is how much the runner may send, and receive, in megabits a second.
func (p Policy) Rate() int { return cmp.Or(p.Wish.Bandwidth, p.Offer.Bandwidth) }

// Check returns an error for a policy that can't be kept.
func (p Policy) Check() error {
	if err := errors.Join(p.Offer.Check(), p.Wish.Check()); err != nil {
		return err
	}
	if p.Rate() > p.Offer.Bandwidth {
		return fmt.Errorf("a bandwidth of %d megabits a second is more than the %d that one runner may have", p.Rate(), p.Offer.Bandwidth)
	}
	_, _, err := p.Pool.Addresses(p.Slot)
	return err
}

// A Lease lets a runner reach what a name stands for, for [LeaseTime] after the
// last answer or packet.
type Lease struct {
	Addresses []netip.Addr `json:"addresses"`
}

// LeaseTime is long, since programs keep addresses, and connections, for longer
// than names' owners say.
const LeaseTime = time.Hour

// MaxLease is how many addresses one answer may have.
const MaxLease = 64

// Check returns an error for a lease of nothing, or of too much.
func (l Lease) Check() error {
	if len(l.Addresses) == 0 || len(l.Addresses) > MaxLease {
		return fmt.Errorf("a lease of %d addresses isn't of 1 to %d", len(l.Addresses), MaxLease)
	}
	for _, a := range l.Addresses {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
			return fmt.Errorf("%s isn't an address that is leased", a)
		}
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

// Name returns the name of what belongs to a runner's network, from something of
// the runner's alone, as its control group: of its link, which may have 15 bytes, and in that of its
// table.
func Name(of string) string {
	sum := sha256.Sum256([]byte(of))
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
