package attack

import "github.com/rockpool/rockpool/client"

// A Reach is the network access of attacked runners. Their network is the simulated one of package
// world, which ends on this machine.
type Reach string

// The kinds of network access.
const (
	Offline Reach = ""
	Open    Reach = "open"    // all public addresses
	Named   Reach = "named"   // public.example, and names that resolve to denied addresses
	Exposed Reach = "exposed" // all public addresses, and one exposed port
	Slow    Reach = "slow"    // all public addresses, with little bandwidth
)

// MappedFirst to MappedLast are the machine's ports to which exposed ports can be mapped.
const (
	MappedFirst = 20000
	MappedLast  = 20015
)

// input returns the network settings of an environment with this access. The caller handles
// Offline, which has none.
func (r Reach) input() *client.NetworkInput {
	input := &client.NetworkInput{Access: new(true)}
	switch r {
	case Named:
		input.AllowNames = []string{"public.example", "lan.example", "lan6.example", "metadata.example", "machine.example", "mapped.example", "zero.example", "local.example"}
	case Exposed:
		input.ExposedPorts = []int{8000}
	case Slow:
		input.BandwidthMbit = new(20) // so that 2 MiB take at least 0.8 s
	}
	return input
}
