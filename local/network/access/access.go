// Package access serves the networks of live runners. It answers DNS queries, maps exposed TCP ports to
// ports of the machine, and ends runners whose packet filter was changed by another program. The
// sandbox helper makes links and packet filters.
package access

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

// Config is what runners may use of this machine's network, in addition to [network.Offer].
type Config struct {
	Offer     network.Offer    // unused with a listening helper, which has its own
	Upstreams []netip.AddrPort // name servers, if not those of the machine
	Address   netip.Addr       // address of runners' mapped ports
	First     int              // first and last of the machine's ports for them
	Last      int

	// VerifyEvery is the interval of verifying all packet filters; 0 means 1 minute.
	VerifyEvery time.Duration
	// Listen reports changed packet filters, if not the kernel.
	Listen func(ctx context.Context, changed func(table string)) error
}

// A Helper is the sandbox helper that makes networks.
type Helper struct {
	Offer network.Offer
	Err   error // why it offers none, if it doesn't
	Do    func(ctx context.Context, group string, q helper.Request) error
}

// Access serves the networks of all runners. Its methods are safe for concurrent use.
type Access struct {
	config   *Config // nil if no runner has a network
	helper   Helper
	log      *zap.Logger
	problems *health.Problems
	err      error // why new runners can't have a network
	resolver *resolver
	ports    *portMapper // nil if err isn't, like resolver

	mu      sync.Mutex                   // guards the fields below, and those of each Runner
	runners map[runtime.RunnerID]*Runner // runners whose sandboxes have a network
}

// Open listens for runners' DNS queries, if the config enables networks. An error doesn't stop the
// server: it is reported as a problem, and Supported returns it.
func Open(config *Config, helper Helper, log *zap.Logger, problems *health.Problems) *Access {
	a := &Access{config: config, helper: helper, log: log, problems: problems, runners: map[runtime.RunnerID]*Runner{}}
	if config == nil {
		a.err = errors.New("this server offers no network: start it with --network")
		return a
	}
	if a.err = a.open(); a.err != nil {
		problems.Report("network", fmt.Sprintf("new runners can't have a network, and running ones can't resolve names or be reached at exposed ports: %v", a.err))
	}
	return a
}

// open starts to listen for DNS queries. Its error is why new runners can't have a network.
func (a *Access) open() error {
	if a.helper.Err != nil {
		return a.helper.Err
	}
	upstreams, offer := a.config.Upstreams, a.helper.Offer
	if upstreams == nil {
		var err error
		if upstreams, err = systemResolvers(); err != nil {
			return fmt.Errorf("no name servers are known: set --network-resolver: %w", err)
		}
	}
	names := &resolver{
		gateway: netip.AddrPortFrom(offer.Pool.Gateway(), 53), upstreams: upstreams, offer: offer,
		admit: a.lease, log: a.log.Named("resolver"),
	}
	if err := names.listen(); err != nil {
		return fmt.Errorf("listen for runners' DNS queries (a server that isn't root needs CAP_NET_BIND_SERVICE, and a second server another --network-pool4): %w", err)
	}
	a.resolver, a.ports = names, &portMapper{At: a.config.Address, First: a.config.First, Last: a.config.Last}
	return nil
}

// Run answers DNS queries and verifies packet filters until ctx ends, and waits for its goroutines.
// It verifies filters even if new runners can't have a network.
func (a *Access) Run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	if a.resolver != nil {
		parts.Go(func() { a.resolver.Run(ctx) })
	}
	if a.config != nil {
		parts.Go(func() { a.watch(ctx) })
	}
}

// Close stops listening for DNS queries and on all mapped ports.
func (a *Access) Close() {
	if a.resolver != nil {
		a.ports.CloseAll()
		a.resolver.Close()
	}
}

// lease lets a runner's packet filter pass packets to the addresses of a name.
func (a *Access) lease(ctx context.Context, id string, l network.Lease) error {
	a.mu.Lock()
	r := a.runners[runtime.RunnerID(id)]
	a.mu.Unlock()
	if r == nil {
		return runtime.Errorf(runtime.CodeRunnerGone, "runner %s doesn't exist or has ended", id)
	}
	return a.helper.Do(ctx, r.group, helper.Request{Command: helper.Lease, ID: id, Lease: &l})
}

// Supported returns INVALID_INPUT, naming the field, for a network that this server can't provide.
func (a *Access) Supported(n runtime.Network) error {
	if !n.Used() {
		return nil
	}
	field, must := "network.exposedPorts", "be empty"
	if n.Access {
		field, must = "network.access", "be false"
	}
	if a.err != nil {
		return runtime.Invalid(field, "must %s because networks are unavailable: %v", must, a.err)
	}
	if n.Access && !forwards() {
		return runtime.Invalid(field, "must %s because this machine forwards no packets: set the sysctl net.ipv4.ip_forward to 1, and net.ipv6.conf.all.forwarding for IPv6", must)
	}
	offer := a.helper.Offer
	if n.BandwidthMbit > offer.Bandwidth {
		return runtime.Invalid("network.bandwidthMbit", "must be 0 to %d megabits per second, this server's limit for one runner, not %d", offer.Bandwidth, n.BandwidthMbit)
	}
	for i, prefix := range sandbox.NetworkRequest(n).Allow {
		if network.OnlyDenied(prefix, offer.Pool, offer.Permit) {
			return runtime.Invalid(fmt.Sprintf("network.allow.%d", i), "must not be %s, which no runner can reach: it is private or reserved; the operator can permit a private network with --network-permit", prefix)
		}
	}
	return nil
}

// forwards reports whether packets from the default route's interface, as answers to runners, are forwarded.
func forwards() bool {
	on := func(what string) bool {
		text, err := os.ReadFile("/proc/sys/net/ipv4/" + what)
		return err == nil && strings.TrimSpace(string(text)) != "0"
	}
	if on("ip_forward") {
		return true
	}
	// Forwarding can be off in general, and on for one interface. The destination of the default
	// route is 00000000.
	file, err := os.Open("/proc/net/route")
	if err != nil {
		return false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 1 && f[1] == "00000000" && on("conf/"+f[0]+"/forwarding") {
			return true
		}
	}
	return false
}
