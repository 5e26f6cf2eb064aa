package runtime

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
)

// Network says what a runner can reach and which of its ports are exposed.
type Network struct {
	Access       bool  `json:"access"`
	ExposedPorts []int `json:"exposedPorts,omitempty"`
	// Allow (networks or addresses) and AllowNames (names; "*.x" matches all names below x) restrict
	// Access. If both are empty, everything that isn't denied anyway is reachable.
	Allow         []string `json:"allow,omitempty"`
	AllowNames    []string `json:"allowNames,omitempty"`
	BandwidthMbit int      `json:"bandwidthMbit,omitempty"` // per second, each direction; 0 means the cluster's default
}

// Used reports whether a runner has network access or exposed ports.
func (n Network) Used() bool { return n.Access || len(n.ExposedPorts) > 0 }

// Narrow reports whether Access is restricted to named targets.
func (n Network) Narrow() bool { return len(n.Allow) > 0 || len(n.AllowNames) > 0 }

// equal reports whether both are the same, with their lists in the same order.
func (n Network) equal(o Network) bool {
	return n.Access == o.Access && slices.Equal(n.ExposedPorts, o.ExposedPorts) && slices.Equal(n.Allow, o.Allow) &&
		slices.Equal(n.AllowNames, o.AllowNames) && n.BandwidthMbit == o.BandwidthMbit
}

// Bounds of what a client may request.
const (
	MaxAllowed       = 64 // networks, and separately names
	MaxBandwidthMbit = 100_000
)

// validate checks the network's settings on their own, not whether the cluster can enforce them.
func (n Network) validate() error {
	if err := validatePorts(n.ExposedPorts); err != nil {
		return err
	}
	for _, list := range []struct {
		field string
		all   []string
	}{{"network.allow", n.Allow}, {"network.allowNames", n.AllowNames}} {
		if len(list.all) > MaxAllowed {
			return Invalid(list.field, "must be at most %d, not %d", MaxAllowed, len(list.all))
		}
		if len(list.all) > 0 && !n.Access {
			return Invalid(list.field, "must be empty without network.access")
		}
	}
	for i, text := range n.Allow {
		if _, err := ParseNetwork(text); err != nil {
			return Invalid(fmt.Sprintf("network.allow.%d", i), "%v", err)
		}
	}
	for i, name := range n.AllowNames {
		if !domainNames.MatchString(name) || len(name) > 253 {
			return Invalid(fmt.Sprintf("network.allowNames.%d", i), "must be a domain name such as pypi.org, or *.pypi.org for all below it")
		}
	}
	return Between("network.bandwidthMbit", int64(n.BandwidthMbit), 0, MaxBandwidthMbit, "megabits per second (0: the cluster's default)")
}

// ParseNetwork parses an element of Network.Allow: a network, or an address as a network of one.
func ParseNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("must be a network such as 151.101.0.0/16 or 2a04:4e42::/32, or an address, not %q", text)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("must be a network's own address: %s, not %s", p.Masked(), text)
	}
	return p, nil
}

// domainNames matches a domain name, with *. before it for all names below.
var domainNames = regexp.MustCompile(`^(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

func validatePorts(ports []int) error {
	if len(ports) > 64 {
		return Invalid("network.exposedPorts", "must be at most 64 ports")
	}
	seen := map[int]bool{}
	for i, port := range ports {
		field := fmt.Sprintf("network.exposedPorts.%d", i)
		if err := Between(field, int64(port), 1, 65535, "(a port)"); err != nil {
			return err
		}
		if seen[port] {
			return Invalid(field, "port %d occurs twice", port)
		}
		seen[port] = true
	}
	return nil
}
