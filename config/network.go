package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/local/network"
)

// An Offer are the settings for runners' network access. With a rockpool helper they are the helper's
// settings.
type Offer struct {
	Pool4     string   `name:"pool4" env:"ROCKPOOL_NETWORK_POOL4" default:"10.213.0.0/16" placeholder:"NETWORK" help:"Private IPv4 network of runners' addresses, with a prefix of 8 to 16 bits. Each server on a machine needs its own. (${default}; $$${env})"`
	Pool6     string   `name:"pool6" env:"ROCKPOOL_NETWORK_POOL6" default:"fd52:6f63:6b70:6f6f::/64" placeholder:"NETWORK" help:"IPv6 network of runners' addresses, within fc00::/7, with a prefix of at most 112 bits. Each server on a machine needs its own. (${default}; $$${env})"`
	Permit    []string `env:"ROCKPOOL_NETWORK_PERMIT" placeholder:"NETWORK,…" help:"Private networks that runners with network access may reach, for example that of a package mirror; at most 64. Empty: none. ($$${env})"`
	Bandwidth int      `env:"ROCKPOOL_NETWORK_BANDWIDTH" default:"100" placeholder:"MBIT" help:"Megabits per second that one runner may send, and as many that it may receive. Environments can request less. Allowed: 1 to 100000. (${default}; $$${env})"`
}

// Network are the settings for the network of runners on this machine.
type Network struct {
	Offer
	Resolver []string `env:"ROCKPOOL_NETWORK_RESOLVER" placeholder:"ADDRESS,…" help:"Name servers that receive runners' DNS queries: addresses, with a port if it isn't 53. (those of /etc/resolv.conf; $$${env})"`
	Address  string   `env:"ROCKPOOL_NETWORK_ADDRESS" default:"127.0.0.1" placeholder:"ADDRESS" help:"Address of this machine where runners' exposed ports are reached. 0.0.0.0: all addresses. (${default}; $$${env})"`
	Ports    string   `env:"ROCKPOOL_NETWORK_PORTS" default:"20000-29999" placeholder:"FIRST-LAST" help:"Ports of this machine that runners' exposed ports are mapped to. Allowed: a range within 1 to 65535. (${default}; $$${env})"`
}

// Parse returns the parsed settings, or an [Error].
func (c Offer) Parse() (offer network.Offer, err error) {
	pool := &offer.Pool
	if pool.V4, err = netip.ParsePrefix(c.Pool4); err != nil {
		return offer, &Error{"network-pool4", c.Pool4, "a network such as 10.213.0.0/16"}
	}
	if pool.V6, err = netip.ParsePrefix(c.Pool6); err != nil {
		return offer, &Error{"network-pool6", c.Pool6, "a network such as fd52:6f63:6b70:6f6f::/64"}
	}
	// Check Pool4 with a valid Pool6 first, so that the error names the invalid setting.
	if err := (network.Pool{V4: pool.V4, V6: network.DefaultPool6}).Check(); err != nil {
		return offer, &Error{"network-pool4", c.Pool4, "a network of runners' own: " + err.Error()}
	}
	if err := pool.Check(); err != nil {
		return offer, &Error{"network-pool6", c.Pool6, "a network of runners' own: " + err.Error()}
	}
	for _, text := range c.Permit {
		prefix, err := netip.ParsePrefix(text)
		if err == nil {
			err = network.Permissible(prefix)
		}
		if err != nil {
			return offer, &Error{"network-permit", text, "a private network, such as 10.1.2.0/24: " + err.Error()}
		}
		offer.Permit = append(offer.Permit, prefix)
	}
	if len(offer.Permit) > network.MaxPermit {
		return offer, &Error{"network-permit", strings.Join(c.Permit, ","), fmt.Sprintf("at most %d networks", network.MaxPermit)}
	}
	offer.Bandwidth = c.Bandwidth
	return offer, within("network-bandwidth", c.Bandwidth, 1, network.MaxBandwidth, " megabits a second")
}

// Addresses are a parsed [Network], without its [Offer].
type Addresses struct {
	Resolvers   []netip.AddrPort
	Address     netip.Addr
	First, Last int // ports
}

// Parse returns the parsed settings, or an [Error].
func (c Network) Parse() (offer network.Offer, a Addresses, err error) {
	if offer, err = c.Offer.Parse(); err != nil {
		return offer, a, err
	}
	for _, text := range c.Resolver {
		at, err := netip.ParseAddrPort(text)
		// An address without a port has the port of DNS.
		if addr, isAddr := netip.ParseAddr(text); isAddr == nil {
			at, err = netip.AddrPortFrom(addr, 53), nil
		}
		if err != nil {
			return offer, a, &Error{"network-resolver", text, "an address, with a port if that isn't 53, for example 192.0.2.53 or [2001:db8::53]:5353"}
		}
		a.Resolvers = append(a.Resolvers, at)
	}
	if a.Address, err = netip.ParseAddr(c.Address); err != nil {
		return offer, a, &Error{"network-address", c.Address, "an address of this machine's, for example 192.0.2.7, or 0.0.0.0 for all"}
	}
	first, last, _ := strings.Cut(c.Ports, "-")
	a.First, err = strconv.Atoi(first)
	if err == nil {
		a.Last, err = strconv.Atoi(last)
	}
	if err != nil || a.First < 1 || a.Last < a.First || a.Last > 65535 {
		return offer, a, &Error{"network-ports", c.Ports, "a first and a last port of 1 to 65535, for example 20000-29999"}
	}
	return offer, a, nil
}
