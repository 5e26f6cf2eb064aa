package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/runtime"
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

// Images are the settings for container images of runners on this machine.
type Images struct {
	CacheBytes int64    `env:"ROCKPOOL_IMAGE_CACHE_BYTES" default:"20GiB" type:"size" placeholder:"SIZE" help:"Disk space for container images on this machine. Unused images are deleted first, images in use never. Allowed: 64MiB to 1PiB. (${default}; $$${env})"`
	Bytes      int64    `env:"ROCKPOOL_IMAGE_BYTES" default:"10GiB" type:"size" placeholder:"SIZE" help:"Largest size of one unpacked image. Allowed: 1MiB to 1PiB. (${default}; $$${env})"`
	Timeout    int      `env:"ROCKPOOL_IMAGE_TIMEOUT" default:"30m" type:"time" placeholder:"TIME" help:"How long one attempt to pull an image may take. Allowed: 1s to 1d. (${default}; $$${env})"`
	Files      string   `env:"ROCKPOOL_IMAGE_FILES" placeholder:"DIR" complete:"file" help:"Directory of image archives and OCI layouts that environments can name as file:NAME. (image-files in the data directory; $$${env})"`
	Registries []string `env:"ROCKPOOL_IMAGE_REGISTRIES" placeholder:"HOST,…" help:"Registries that the server may contact for images, and the hosts that these lead to, for example for tokens and layers. Name the port if it isn't 443. *.example.org: all hosts below example.org. With --cluster=nomad the nodes fetch images, so leave this out. (any; $$${env})"`
	CACert     string   `name:"ca-cert" env:"ROCKPOOL_IMAGE_CA_CERT" placeholder:"FILE" complete:"file" help:"PEM file with authorities that sign registries' certificates, in addition to the machine's. ($$${env})"`
	Stall      int      `env:"ROCKPOOL_IMAGE_STALL" default:"1m" type:"time" placeholder:"TIME" help:"How long a registry may take to send 64 KiB. A slower pull has stalled, and is tried again. Allowed: 1s to 4m. (${default}; $$${env})"`
	PlainHTTP  []string `name:"plain-http" env:"ROCKPOOL_IMAGE_PLAIN_HTTP" placeholder:"HOST:PORT,…" help:"Registries without TLS, for example registry.example.org:5000. Registries on this machine's loopback need no entry. ($$${env})"`
}

// check completes the settings; data is the server's directory.
func (c *Images) check(data string) error {
	err := cmp.Or(
		within("image-cache-bytes", c.CacheBytes, 64<<20, 1<<50, " bytes"),
		within("image-bytes", c.Bytes, 1<<20, 1<<50, " bytes"),
		within("image-timeout", c.Timeout, 1, 86400, " seconds"),
		within("image-stall", c.Stall, 1, 240, " seconds"),
	)
	if err != nil {
		return err
	}
	for _, host := range c.Registries {
		if name := strings.TrimPrefix(host, "*."); !isHost(name) || strings.Contains(name, "*") {
			return &Error{"image-registries", host, "registries' hosts, without https:// or a path, for example registry.example.org, registry.example.org:5000 or *.example.org"}
		}
	}
	if c.CACert != "" {
		if _, err := os.ReadFile(c.CACert); err != nil {
			return &Error{"image-ca-cert", c.CACert, "a file that can be read: " + reason(err)}
		}
	}
	for _, host := range c.PlainHTTP {
		if _, _, noPort := net.SplitHostPort(host); !isHost(host) || noPort != nil {
			return &Error{"image-plain-http", host, "registries' hosts and ports, without http://, for example registry.example.org:5000"}
		}
	}
	if c.Files == "" {
		c.Files = filepath.Join(data, "image-files")
	}
	dir, err := filepath.Abs(c.Files)
	if err != nil {
		return &Error{"image-files", c.Files, "a directory: " + err.Error()}
	}
	c.Files = dir
	return nil
}

// isHost reports whether a text is a host, with or without a port.
func isHost(text string) bool {
	u, err := url.Parse("//" + text)
	return err == nil && u.Hostname() != "" && u.Host == text
}

// Disk are the limits for runners' use of this machine's disks.
type Disk struct {
	Read int `env:"ROCKPOOL_DISK_READ" default:"128MiB" type:"size" unit:"MiB" placeholder:"SIZE" help:"How much a runner may read from each disk in a second, if the kernel can limit that. With --sandbox-helper this is a flag of rockpool helper. Allowed: 1MiB to 1TiB; 0: no limit. (${default}; $$${env})"`
}

// Check returns an [Error] for a setting out of range.
func (c Disk) Check() error {
	return zeroOr("disk-read", c.Read, 1, 1<<20, " MiB a second, or 0 for no limit")
}

// Runtimes are the settings for other programs that make sandboxes on this machine.
type Runtimes struct {
	GVisor string   `name:"gvisor-runtime" env:"ROCKPOOL_GVISOR_RUNTIME" placeholder:"PATH" complete:"file" help:"gVisor's program runsc, for environments with the isolation GVISOR. Flags for it follow after spaces, for example \"/usr/local/bin/runsc --platform=kvm\". With --sandbox-helper this is a flag of rockpool helper. Empty: this isolation is unavailable. ($$${env})"`
	OCI    []string `name:"oci-runtimes" env:"ROCKPOOL_OCI_RUNTIMES" placeholder:"NAME=PATH,…" help:"Programs that environments can name as their runtime, each with flags after spaces, for example \"runc=/usr/bin/runc\". They must have runc's command line. With --sandbox-helper this is a flag of rockpool helper. ($$${env})"`
}

// Parse returns the parsed settings, or an [Error].
func (c Runtimes) Parse() (oci.Runtimes, error) {
	all := oci.Runtimes{}
	if c.GVisor != "" {
		gvisor, err := oci.Parse(c.GVisor)
		if err != nil {
			return nil, &Error{"gvisor-runtime", c.GVisor, err.Error()}
		}
		all[oci.GVisor] = gvisor
	}
	for _, text := range c.OCI {
		name, setting, _ := strings.Cut(text, "=")
		program, err := oci.Parse(setting)
		switch {
		case !runtime.ValidRuntime(name) || name == oci.GVisor:
			return nil, &Error{"oci-runtimes", text, fmt.Sprintf("names of 1 to 32 lower-case letters, digits and '-', except %q, each followed by = and a path, for example runc=/usr/bin/runc", oci.GVisor)}
		case err != nil:
			return nil, &Error{"oci-runtimes", text, "a name, =, " + err.Error()}
		}
		if _, twice := all[name]; twice {
			return nil, &Error{"oci-runtimes", strings.Join(slices.Sorted(maps.Keys(all)), ","), "names that stand once: " + name + " stands twice"}
		}
		all[name] = program
	}
	return all, nil
}
