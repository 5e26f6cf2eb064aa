package listing

import (
	"strconv"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/job"
)

func TestNodesOfADriver(t *testing.T) {
	node := func(driver string, healthy bool, attributes map[string]string) *api.NodeListStub {
		return &api.NodeListStub{
			Status: api.NodeStatusReady, SchedulingEligibility: api.NodeSchedulingEligible,
			Drivers: map[string]*api.DriverInfo{driver: {Detected: true, Healthy: healthy, Attributes: attributes}},
		}
	}
	drained := node("docker", true, nil)
	drained.Drain = true
	n := Nodes{known: map[string]*api.NodeListStub{
		"bridge": node("docker", true, map[string]string{"driver.docker.bridge_ip": "172.17.0.1"}), "none": node("docker", true, nil),
		"ill": node("docker", false, nil), "drained": drained, "other": node("exec", true, nil),
	}}
	if taking, all := n.Taking(job.Docker); taking != 2 || all != 5 {
		t.Errorf("%d of %d take docker's tasks", taking, all)
	}
	n.known["bridge"].NodeResources = &api.NodeResources{Cpu: api.NodeCpuResources{CpuShares: 5000}, Memory: api.NodeMemoryResources{MemoryMB: 1000}}
	n.known["bridge"].ReservedResources = &api.NodeReservedResources{Cpu: api.NodeReservedCpuResources{CpuShares: 500}, Memory: api.NodeReservedMemoryResources{MemoryMB: 200}}
	if cpu, memory := n.Room(job.Docker, 1000, 100), n.Room(job.Docker, 100, 300); cpu != 4 || memory != 2 {
		t.Errorf("%d and %d runners fit", cpu, memory)
	}
	if bare := n.Reporting(job.Docker, "bridge_ip", ""); bare != 1 {
		t.Errorf("%d have no bridge, want 1", bare)
	}
}

func TestCoreClockIsKnownIfNodesAgree(t *testing.T) {
	node := func(mhz int64, cores uint16) *api.NodeListStub {
		return &api.NodeListStub{
			Status: api.NodeStatusReady, SchedulingEligibility: api.NodeSchedulingEligible,
			NodeResources: &api.NodeResources{Cpu: api.NodeCpuResources{CpuShares: mhz, TotalCpuCores: cores}},
		}
	}
	away := node(9000, 1)
	away.Status = api.NodeStatusDown
	for name, test := range map[string]struct {
		nodes []*api.NodeListStub
		want  int
	}{
		"none":       {nil, 0},
		"alike":      {[]*api.NodeListStub{node(5000, 2), node(10000, 4), away}, 2500},
		"different":  {[]*api.NodeListStub{node(5000, 2), node(5000, 1)}, 0},
		"not stated": {[]*api.NodeListStub{node(5000, 2), node(5000, 0)}, 0},
	} {
		n := Nodes{known: map[string]*api.NodeListStub{}}
		for i, stub := range test.nodes {
			n.known[strconv.Itoa(i)] = stub
		}
		if mhz := n.CoreMHz(); mhz != test.want {
			t.Errorf("%s: %d MHz, not %d", name, mhz, test.want)
		}
	}
}
