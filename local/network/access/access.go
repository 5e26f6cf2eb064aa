// Package access serves the networks of live runners. It answers DNS queries, maps exposed TCP ports to
// ports of the machine, and ends runners whose packet filter was changed by another program. The
// sandbox helper makes links and packet filters.
package access

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/network"
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
