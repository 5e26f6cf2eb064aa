package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/network"
)

// An OfferConfig says what runners on this machine may have of the network. With
// a helper that listens it is the helper's.
type OfferConfig struct {
	Pool4     string   `name:"pool4" env:"ROCKPOOL_NETWORK_POOL4" default:"10.213.0.0/16" placeholder:"NETWORK" help:"Private IPv4 network that runners' addresses are from, of 8 to 16 bits. (${default}; $$${env})"`
	Pool6     string   `name:"pool6" env:"ROCKPOOL_NETWORK_POOL6" default:"fd52:6f63:6b70:6f6f::/64" placeholder:"NETWORK" help:"And the IPv6 network, within fc00::/7. (${default}; $$${env})"`
	Permit    []string `env:"ROCKPOOL_NETWORK_PERMIT" placeholder:"NETWORK,…" help:"Private networks that runners with network access may reach, such as that of a package mirror; else none. ($$${env})"`
	Bandwidth int      `env:"ROCKPOOL_NETWORK_BANDWIDTH" default:"100" placeholder:"MBIT" help:"Megabits a second that one runner may send, and as many that it may receive, 1 to 100000; environments can ask for less. (${default}; $$${env})"`
}

// NetworkConfig are the settings for the network of runners on this machine.
type NetworkConfig struct {
	OfferConfig
	Resolver []string `env:"ROCKPOOL_NETWORK_RESOLVER" placeholder:"ADDRESS,…" help:"Name servers that runners' questions are passed on to. (those of /etc/resolv.conf; $$${env})"`
	Address  string   `env:"ROCKPOOL_NETWORK_ADDRESS" default:"127.0.0.1" placeholder:"ADDRESS" help:"Address of this machine's at which runners' exposed ports are reached. (${default}; $$${env})"`
	Ports    string   `env:"ROCKPOOL_NETWORK_PORTS" default:"20000-29999" placeholder:"FIRST-LAST" help:"Ports of this machine's that runners' ports are mapped to. (${default}; $$${env})"`
}

// offer checks the settings.
func (c OfferConfig) offer() (network.Offer, error) {
	o := network.Offer{Bandwidth: cmp.Or(c.Bandwidth, 100)} // a Config that was made in Go
	var err error
	if o.Pool.V4, err = netip.ParsePrefix(cmp.Or(c.Pool4, network.DefaultPool4.String())); err != nil {
		return o, &settingError{"network-pool4", c.Pool4, "a network such as " + network.DefaultPool4.String()}
	}
	if o.Pool.V6, err = netip.ParsePrefix(cmp.Or(c.Pool6, network.DefaultPool6.String())); err != nil {
		return o, &settingError{"network-pool6", c.Pool6, "a network such as " + network.DefaultPool6.String()}
	}
	if err := (network.Pool{V4: o.Pool.V4, V6: network.DefaultPool6}).Check(); err != nil {
		return o, &settingError{"network-pool4", c.Pool4, "a network of runners' own: " + err.Error()}
	}
	if err := o.Pool.Check(); err != nil {
		return o, &settingError{"network-pool6", c.Pool6, "a network of runners' own: " + err.Error()}
	}
	for _, text := range c.Permit {
		prefix, err := netip.ParsePrefix(text)
		if err == nil {
			err = network.Permissible(prefix)
		}
		if err != nil {
			return o, &settingError{"network-permit", text, "a private network, such as 10.1.2.0/24: " + err.Error()}
		}
		o.Permit = append(o.Permit, prefix)
	}
	if len(o.Permit) > network.MaxPermit {
		return o, &settingError{"network-permit", strings.Join(c.Permit, ","), fmt.Sprintf("at most %d networks", network.MaxPermit)}
	}
	if o.Bandwidth < 1 || o.Bandwidth > network.MaxBandwidth {
		return o, &settingError{"network-bandwidth", strconv.Itoa(o.Bandwidth), fmt.Sprintf("1 to %d megabits a second", network.MaxBandwidth)}
	}
	return o, nil
}

// local returns what package local is given.
func (c NetworkConfig) local() (*local.Network, error) {
	offer, err := c.offer()
	if err != nil {
		return nil, err
	}
	n := &local.Network{Offer: offer}
	for _, text := range c.Resolver {
		at, err := netip.ParseAddrPort(text)
		if addr, isAddr := netip.ParseAddr(text); isAddr == nil {
			at, err = netip.AddrPortFrom(addr, 53), nil
		}
		if err != nil {
			return nil, &settingError{"network-resolver", text, "an address, with a port if that isn't 53, for example 192.0.2.53 or [2001:db8::53]:5353"}
		}
		n.Upstreams = append(n.Upstreams, at)
	}
	if n.Address, err = netip.ParseAddr(cmp.Or(c.Address, "127.0.0.1")); err != nil {
		return nil, &settingError{"network-address", c.Address, "an address of this machine's, for example 192.0.2.7, or 0.0.0.0 for all"}
	}
	ports := cmp.Or(c.Ports, "20000-29999")
	first, last, _ := strings.Cut(ports, "-")
	n.First, err = strconv.Atoi(first)
	if err == nil {
		n.Last, err = strconv.Atoi(last)
	}
	if err != nil || n.First < 1 || n.Last < n.First || n.Last > 65535 {
		return nil, &settingError{"network-ports", ports, "a first and a last port of 1 to 65535, for example 20000-29999"}
	}
	return n, nil
}
