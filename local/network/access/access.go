// Package access is what the server does for runners' networks while they live: it
// answers their questions for names, maps their exposed ports, and ends runners whose
// packet filter another program changed. Their links and packet filters are made by
// the sandbox helper.
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
	"github.com/rockpool/rockpool/local/network/ports"
	"github.com/rockpool/rockpool/local/network/resolver"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/problems"
)

// Config is what runners may have of this machine's network, beside what
// [network.Offer] says.
type Config struct {
	Offer     network.Offer    // not used with a helper that listens: it is the helper's
	Upstreams []netip.AddrPort // name servers; nil: those of the machine
	Address   netip.Addr       // where runners' ports are reached
	First     int              // of the machine's ports for them
	Last      int

	VerifyEvery time.Duration                                            // how often all packet filters are verified; 0: every minute
	Listen      func(ctx context.Context, told func(table string)) error // reports changed packet filters; nil: watch.Filters
}

// A Helper is the sandbox helper that makes the networks.
type Helper struct {
	Offer network.Offer
	Err   error // why it makes none; nil: it does
	Ask   func(ctx context.Context, group string, q helper.Request) error
}

// Access is what a server has for runners with a network. Its methods may be called
// at once.
type Access struct {
	config   *Config // nil: no runner has one
	helper   Helper
	log      *zap.Logger
	problems *problems.List
	err      error // why no further runner can have a network
	resolver *resolver.Resolver
	ports    *ports.Mapper // nil, like resolver, with err

	mu      sync.Mutex                   // guards all below, and what runners know
	runners map[runtime.RunnerID]*Runner // whose sandboxes have a network
}

// Open listens for runners' questions for names, if a config lets them have a
// network. What it lacks doesn't stop the server: Ready returns it.
func Open(config *Config, helper Helper, log *zap.Logger, problems *problems.List) *Access {
	a := &Access{config: config, helper: helper, log: log, problems: problems, runners: map[runtime.RunnerID]*Runner{}}
	if config == nil {
		a.err = errors.New("this server offers none: start it with --network")
		return a
	}
	if a.err = a.open(); a.err != nil {
		problems.Report("network", fmt.Sprintf("no further runner can have one, and those that run get no answers for names and aren't reached at exposed ports: %v", a.err))
	}
	return a
}

func (a *Access) open() error {
	if a.helper.Err != nil {
		return a.helper.Err
	}
	upstreams, offer := a.config.Upstreams, a.helper.Offer
	if upstreams == nil {
		var err error
		if upstreams, err = resolver.System(); err != nil {
			return fmt.Errorf("no name servers are known: name them with --network-resolver: %w", err)
		}
	}
	names, err := resolver.New(resolver.Config{
		Gateway: netip.AddrPortFrom(offer.Pool.Gateway(), 53), Upstreams: upstreams, Pool: offer.Pool, Permit: offer.Permit,
		Lease: a.lease, Logger: a.log.Named("resolver"),
	})
	if err != nil {
		return fmt.Errorf("runners' questions for names can't be listened for (a server that isn't root needs CAP_NET_BIND_SERVICE, a second one another --network-pool4): %w", err)
	}
	a.resolver, a.ports = names, &ports.Mapper{At: a.config.Address, First: a.config.First, Last: a.config.Last}
	return nil
}

// Ready returns why no further runner can have a network; nil: it can.
func (a *Access) Ready() error { return a.err }

// Run answers questions for names, and verifies packet filters, also where no
// further runner can have a network, until ctx ends.
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

// Close stops listening, for names and at all ports.
func (a *Access) Close() {
	if a.resolver != nil {
		a.ports.CloseAll()
		a.resolver.Close()
	}
}

// lease has a runner's packet filter let it reach what a name stands for.
func (a *Access) lease(ctx context.Context, id string, l network.Lease) error {
	a.mu.Lock()
	r := a.runners[runtime.RunnerID(id)]
	a.mu.Unlock()
	if r == nil {
		return runtime.Errorf(runtime.CodeRunnerGone, "runner %s isn't there", id)
	}
	return a.helper.Ask(ctx, r.group, helper.Request{Command: helper.Lease, ID: id, Lease: &l})
}
