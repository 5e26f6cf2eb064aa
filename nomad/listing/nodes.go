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

// drainMemory is how long after its end a drain can be why an allocation was stopped.
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

// taking returns the nodes that can run new tasks of a driver. The caller holds mu.
func (n *Nodes) taking(driver job.Driver) (taking []*api.NodeListStub) {
	for _, node := range n.known {
		if d := node.Drivers[string(driver)]; ready(node) && !node.Drain && d != nil && d.Detected && d.Healthy {
			taking = append(taking, node)
		}
	}
	return taking
}

// Taking returns how many nodes can run tasks of a driver, and the number of all nodes.
func (n *Nodes) Taking(driver job.Driver) (taking, all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.taking(driver)), len(n.known)
}

// Reporting returns how many nodes that take a driver's tasks report a value of an attribute of it.
func (n *Nodes) Reporting(driver job.Driver, attribute, value string) (reporting int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.taking(driver) {
		if node.Drivers[string(driver)].Attributes["driver."+string(driver)+"."+attribute] == value {
			reporting++
		}
	}
	return reporting
}

// Capacity returns the resources of all nodes for runners.
func (n *Nodes) Capacity() runtime.Capacity {
	n.mu.Lock()
	defer n.mu.Unlock()
	var sum runtime.Capacity
	for _, node := range n.known {
		if ready(node) {
			mhz, mib := resourcesOf(node)
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

// Room returns how many runners of a size would fit on the nodes for a driver, if those were empty.
func (n *Nodes) Room(driver job.Driver, mhz, mib int64) (runners int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.taking(driver) {
		cpu, memory := resourcesOf(node)
		runners += max(min(cpu/mhz, memory/mib), 0)
	}
	return runners
}

func resourcesOf(node *api.NodeListStub) (mhz, mib int64) {
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

func ready(node *api.NodeListStub) bool {
	return node.Status == api.NodeStatusReady && node.SchedulingEligibility == api.NodeSchedulingEligible
}
