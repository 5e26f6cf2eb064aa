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

// drainMemory is how long after the end of a drain it can still be the reason that an allocation
// was stopped.
const drainMemory = time.Minute

// Nodes are Nomad's client nodes in the last list. Its methods are safe for concurrent use.
type Nodes struct {
	nomad *connection.Client

	mu    sync.Mutex                   // guards the fields below
	known map[string]*api.NodeListStub // by id
	at    time.Time                    // when they were listed
	fresh bool                         // no node has changed since
}

// NewNodes returns nodes without a list. Refresh reads the first one.
func NewNodes(nomad *connection.Client) *Nodes { return &Nodes{nomad: nomad} }

// Outdate makes the next Refresh list the nodes.
func (n *Nodes) Outdate() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fresh = false
}

// Refresh lists the nodes if they are outdated.
func (n *Nodes) Refresh(ctx context.Context) error {
	n.mu.Lock()
	fresh := n.fresh
	// It is set before the list is read: a change meanwhile resets it, and the next Refresh lists
	// again.
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

// Drains reports whether a node is being drained, or was within the last minute.
func (n *Nodes) Drains(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.known[id]
	if node == nil {
		return false
	}
	return node.Drain || node.LastDrain != nil && n.at.Sub(node.LastDrain.UpdatedAt) < drainMemory && node.SchedulingEligibility != api.NodeSchedulingEligible
}

// Taking returns how many nodes can run tasks of a driver, and the number of all nodes.
func (n *Nodes) Taking(driver job.Driver) (taking, all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.known {
		if accepts(node, driver) {
			taking++
		}
	}
	return taking, len(n.known)
}

// Allowing returns how many of the nodes that can run tasks of a driver report an attribute of it
// as true.
func (n *Nodes) Allowing(driver job.Driver, attribute string) (allowing int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.known {
		if accepts(node, driver) && node.Drivers[string(driver)].Attributes["driver."+string(driver)+"."+attribute] == "true" {
			allowing++
		}
	}
	return allowing
}

// Bridgeless returns how many of the nodes that can run Docker tasks report no address of Docker's
// bridge. Docker 20.10 also reports none if it created the bridge when it started.
func (n *Nodes) Bridgeless() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, node := range n.known {
		if accepts(node, job.Docker) && node.Drivers[string(job.Docker)].Attributes["driver.docker.bridge_ip"] == "" {
			count++
		}
	}
	return count
}

// Capacity returns the resources of all nodes for runners.
func (n *Nodes) Capacity() runtime.Capacity {
	n.mu.Lock()
	defer n.mu.Unlock()
	var sum runtime.Capacity
	for _, node := range n.known {
		if ready(node) {
			mhz, mib := has(node)
			sum.CPUMHz += int(mhz)
			if resources := node.NodeResources; resources != nil {
				sum.CPUs += int(resources.Cpu.TotalCpuCores)
			}
			sum.MemoryMiB += mib
		}
	}
	sum.CPUMHzPromisable, sum.MemoryMiBPromisable = sum.CPUMHz, sum.MemoryMiB
	return sum
}

// CoreMHz returns the clock of one core. It is 0 if nodes differ or don't report it.
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

// Room returns how many runners that reserve these resources would fit on the nodes that can run
// tasks of a driver, if those were empty.
func (n *Nodes) Room(driver job.Driver, mhz, mib int64) (runners int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.known {
		if accepts(node, driver) {
			cpu, memory := has(node)
			runners += max(min(cpu/mhz, memory/mib), 0)
		}
	}
	return runners
}

// has returns a node's resources for tasks, in MHz and MiB.
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

// accepts reports whether a node can run new tasks of a driver.
func accepts(node *api.NodeListStub, driver job.Driver) bool {
	d := node.Drivers[string(driver)]
	return ready(node) && !node.Drain && d != nil && d.Detected && d.Healthy
}

// ready reports whether a node is connected and accepts new allocations.
func ready(node *api.NodeListStub) bool {
	return node.Status == api.NodeStatusReady && node.SchedulingEligibility == api.NodeSchedulingEligible
}
