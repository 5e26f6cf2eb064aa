package server

import (
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/doors"
	"github.com/rockpool/rockpool/doors/jobe"
	"github.com/rockpool/rockpool/doors/mcp"
	"github.com/rockpool/rockpool/doors/poseidon"
	"github.com/rockpool/rockpool/runtime"
)

// openDoors returns the doors with these names. config has checked the names.
func openDoors(names []string, cluster string) []doors.Door {
	made := map[string]func() doors.Door{
		config.DoorPoseidon: func() doors.Door { return poseidon.New(forCodeOcean(cluster)) },
		config.DoorJobe:     jobe.New,
		config.DoorMCP:      func() doors.Door { return mcp.New() },
	}
	var all []doors.Door
	for _, name := range names {
		all = append(all, made[name]())
	}
	return all
}

// forCodeOcean returns how the Poseidon door changes the environments that CodeOcean puts. They
// have few MHz, because Nomad treats MHz as shares. On this machine MHz are limits, and a program
// with so few would take minutes to start.
func forCodeOcean(cluster string) poseidon.Options {
	if cluster == config.ClusterNomad {
		return poseidon.Options{Isolation: runtime.IsolationCluster}
	}
	return poseidon.Options{LeastCPUMHz: runtime.DefaultResources().CPUMHz}
}
