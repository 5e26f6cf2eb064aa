package listing

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
)

// drainMemory is how long after a drain its end still explains that an
// allocation was stopped.
const drainMemory = time.Minute

// Nodes are Nomad's, as they were listed last. Its methods may be called at once.
type Nodes struct {
	nomad *connection.Client

	mu    sync.Mutex // guards what follows
	known map[string]*api.NodeListStub
	at    time.Time // when they were listed
	fresh bool      // nothing happened to one since
}

// NewNodes returns nodes that weren't listed yet.
func NewNodes(nomad *connection.Client) *Nodes { return &Nodes{nomad: nomad} }

// Outdate has the next Refresh list the nodes.
func (n *Nodes) Outdate() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fresh = false
}

// Refresh lists the nodes, if they were outdated since they were listed.
func (n *Nodes) Refresh(ctx context.Context) error {
	n.mu.Lock()
	fresh := n.fresh
	n.fresh = true
	n.mu.Unlock()
	if fresh {
		return nil
	}
	nodes := map[string]*api.NodeListStub{}
	err := n.nomad.Call(ctx, "list nodes", func(ctx context.Context) error {
		q := connection.Query(ctx)
		q.Params = map[string]string{"resources": "true"}
		all, _, err := n.nomad.API().Nodes().List(q)
		for _, node := range all {
			nodes[node.ID] = node
		}
		return err
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.fresh = false
		return err
	}
	n.known, n.at = nodes, time.Now()
	return nil
}

// Drains reports whether a node is being drained, or was a moment ago.
func (n *Nodes) Drains(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.known[id]
	if node == nil {
		return false
	}
	return node.Drain || node.LastDrain != nil && n.at.Sub(node.LastDrain.UpdatedAt) < drainMemory && node.SchedulingEligibility != api.NodeSchedulingEligible
}

// Taking returns how many nodes take tasks of a driver, and how many there are.
func (n *Nodes) Taking(driver job.Driver) (taking, all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.known {
		if takes(node, driver) {
			taking++
		}
	}
	return taking, len(n.known)
}

// Allowing returns how many of the nodes that take tasks of a driver have an attribute of that driver
// set to true.
func (n *Nodes) Allowing(driver job.Driver, attribute string) (allowing int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.known {
		if takes(node, driver) && node.Drivers[string(driver)].Attributes["driver."+string(driver)+"."+attribute] == "true" {
			allowing++
		}
	}
	return allowing
}

// Bridgeless returns how many of the nodes that take Docker's tasks show no address of its
// bridge. Docker 20.10 shows none either where it made the bridge when it started.
func (n *Nodes) Bridgeless() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, node := range n.known {
		if takes(node, job.Docker) && node.Drivers[string(job.Docker)].Attributes["driver.docker.bridge_ip"] == "" {
			count++
		}
	}
	return count
}

// Capacity returns what all nodes have for runners.
func (n *Nodes) Capacity() runtime.Capacity {
	n.mu.Lock()
	defer n.mu.Unlock()
	var sum runtime.Capacity
	for _, node := range n.known {
		if ready(node) {
			mhz, mib := has(node)
			sum.CPUMHz += int(mhz)
			sum.MemoryMiB += mib
		}
	}
	sum.CPUMHzPromisable, sum.MemoryMiBPromisable = sum.CPUMHz, sum.MemoryMiB
	return sum
}

// CoreMHz returns what one core gives, and 0 where nodes differ or don't report it.
func (n *Nodes) CoreMHz() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	core := 0
	for _, node := range n.known {
		if !ready(node) {
			continue
		}
		if node.NodeResources == nil || node.NodeResources.Cpu.TotalCpuCores == 0 {
			return 0
		}
		cpu := node.NodeResources.Cpu
		mhz := int(cpu.CpuShares) / int(cpu.TotalCpuCores)
		if core != 0 && mhz != core {
			return 0
		}
		core = mhz
	}
	return core
}

// Room returns how many runners that reserve so much fit on the nodes that take tasks of a driver, were
// these empty.
func (n *Nodes) Room(driver job.Driver, mhz, mib int64) (runners int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.known {
		if takes(node, driver) {
			cpu, memory := has(node)
			runners += max(min(cpu/mhz, memory/mib), 0)
		}
	}
	return runners
}

// has returns what a node has for tasks, in MHz and MiB.
func has(node *api.NodeListStub) (mhz, mib int64) {
	if node.NodeResources == nil {
		return 0, 0
	}
	mhz, mib = node.NodeResources.Cpu.CpuShares, node.NodeResources.Memory.MemoryMB
	if reserved := node.ReservedResources; reserved != nil {
		mhz -= int64(reserved.Cpu.CpuShares)
		mib -= int64(reserved.Memory.MemoryMB)
	}
	return mhz, mib
}

func takes(node *api.NodeListStub, driver job.Driver) bool {
	d := node.Drivers[string(driver)]
	return ready(node) && !node.Drain && d != nil && d.Detected && d.Healthy
}

func ready(node *api.NodeListStub) bool {
	return node.Status == api.NodeStatusReady && node.SchedulingEligibility == api.NodeSchedulingEligible
}
