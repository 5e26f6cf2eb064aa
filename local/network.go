package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/ports"
	"github.com/rockpool/rockpool/local/network/resolver"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/runtime"
)

// A Network is what runners may have of this machine's network, beside what
// [network.Offer] says.
type Network struct {
	Offer     network.Offer    // not used with Config.HelperSocket: it is the helper's
	Upstreams []netip.AddrPort // name servers; nil: those of the machine
	Address   netip.Addr       // where runners' ports are reached
	First     int              // of the machine's ports for them
	Last      int

	verifyEvery time.Duration                                            // 0: every minute; see watchNetworks
	listen      func(ctx context.Context, told func(table string)) error // nil: watch.Filters
}

// A networking is what the server has for runners with a network.
type networking struct {
	offer    network.Offer
	resolver *resolver.Resolver
	ports    *ports.Mapper
}

// openNetwork listens for runners' questions for names, if the operator lets
// them have a network. What it lacks is told to who asks for a network.
func (c *Cluster) openNetwork() {
	config := c.config.Network
	if config == nil {
		return
	}
	if c.ordinary() {
		c.noNetwork = errors.New("only root can give runners one: run a sandbox helper as root")
		return
	}
	offer := config.Offer
	if c.direct == nil {
		if c.offered == nil {
			c.noNetwork = errors.New("the sandbox helper offers none: start it with --network, too")
			return
		}
		offer = *c.offered
	}
	upstreams := config.Upstreams
	if upstreams == nil {
		var err error
		if upstreams, err = resolver.System(); err != nil {
			c.noNetwork = fmt.Errorf("no name servers are known: name them with --network-resolver: %w", err)
			return
		}
	}
	names, err := resolver.New(resolver.Config{
		Gateway: netip.AddrPortFrom(offer.Pool.Gateway(), 53), Upstreams: upstreams, Pool: offer.Pool, Permit: offer.Permit,
		Lease: c.lease, Logger: c.log.Named("resolver"),
	})
	if err != nil {
		c.noNetwork = fmt.Errorf("runners' questions for names can't be listened for (a server that isn't root needs CAP_NET_BIND_SERVICE, a second one another --network-pool4): %w", err)
		return
	}
	c.network = &networking{offer: offer, resolver: names, ports: &ports.Mapper{At: config.Address, First: config.First, Last: config.Last}}
}

// lease has a runner's packet filter let it reach what a name stands for.
func (c *Cluster) lease(ctx context.Context, id string, l network.Lease) error {
	c.mu.Lock()
	e := c.entries[runtime.RunnerID(id)]
	c.mu.Unlock()
	if e == nil {
		return gone(runtime.RunnerID(id))
	}
	return c.launcher.Ask(ctx, e.group, helper.Request{Command: helper.Lease, ID: id, Lease: &l})
}

// networkReady returns why no runner can have a network; nil: some can.
func (c *Cluster) networkReady() error {
	switch {
	case c.config.Network == nil:
		return errors.New("this server offers none: start it with --network")
	case c.noNetwork != nil:
		return c.noNetwork
	}
	return nil
}

// supported returns INVALID_INPUT, naming the field, for an environment that
// can't be run here.
func (c *Cluster) supported(env runtime.Environment) error {
	if err := sandbox.Supported(env); err != nil {
		return err
	}
	n := env.Network
	if !n.Used() {
		return nil
	}
	field, must := "network.exposedPorts", "be empty"
	if n.Access {
		field, must = "network.access", "be false"
	}
	if err := c.networkReady(); err != nil {
		return runtime.Invalid(field, "must %s, since a network can't be had: %v", must, err)
	}
	if n.Access && !forwards() {
		return runtime.Invalid(field, "must %s, since this machine passes no packets on: set its sysctl net.ipv4.ip_forward to 1, and for IPv6 net.ipv6.conf.all.forwarding", must)
	}
	offer := c.network.offer
	if n.BandwidthMbit > offer.Bandwidth {
		return runtime.Invalid("network.bandwidthMbit", "must be 0 to %d megabits a second, the most that this server gives one runner, not %d", offer.Bandwidth, n.BandwidthMbit)
	}
	for i, prefix := range sandbox.Wish(n).Allow {
		if network.OnlyDenied(prefix, offer.Pool, offer.Permit) {
			return runtime.Invalid(fmt.Sprintf("network.allow.%d", i), "must not be %s, which no runner reaches: it is private, or reserved; the operator can permit a private network with --network-permit", prefix)
		}
	}
	return nil
}

// forwards reports whether the machine passes on packets that come from its way
// out, as those for runners do.
func forwards() bool {
	on := func(what string) bool {
		text, err := os.ReadFile("/proc/sys/net/ipv4/" + what)
		return err == nil && strings.TrimSpace(string(text)) != "0"
	}
	if on("ip_forward") {
		return true
	}
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

// findOutWithin is how long a new server tries to find out whether a runner lives,
// and whether its network is kept to its policy, and findOutEvery how often.
const (
	findOutWithin = 10 * time.Second
	findOutEvery  = 200 * time.Millisecond
)

// findOut is as verifyNetwork, but where nobody could tell it tries again.
func (c *Cluster) findOut(ctx context.Context, e *entry) error {
	ctx, cancel := context.WithTimeout(ctx, findOutWithin)
	defer cancel()
	for {
		err := c.verifyNetwork(ctx, e)
		var refusal *launch.RefusalError
		if err == nil || errors.As(err, &refusal) && (refusal.Changed || refusal.Final) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(findOutEvery):
		}
	}
}

// verifyNetwork returns an error unless a runner's network is kept to what it
// was made with.
func (c *Cluster) verifyNetwork(ctx context.Context, e *entry) error {
	c.mu.Lock()
	env, slot := e.runner.Environment, e.slot
	c.mu.Unlock()
	wish := sandbox.Wish(env.Network)
	if wish == nil {
		return nil
	}
	if c.config.Network == nil {
		return &launch.RefusalError{Line: c.networkReady().Error(), Final: true}
	}
	return c.launcher.Ask(ctx, e.group, helper.Request{Command: helper.Verify, ID: string(e.id), Slot: slot, Network: wish})
}
