package access

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/runtime"
)

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
