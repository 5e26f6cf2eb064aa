package server

import (
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/compat/jobe"
	"github.com/rockpool/rockpool/compat/mcp"
	"github.com/rockpool/rockpool/compat/poseidon"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime"
)

// compatAPIs returns the compatible APIs with these names. config has checked the names.
func compatAPIs(names []string, cluster string) []compat.API {
	made := map[string]func() compat.API{
		config.CompatPoseidon: func() compat.API { return poseidon.New(forCodeOcean(cluster)) },
		config.CompatJobe:     jobe.New,
		config.CompatMCP:      func() compat.API { return mcp.New() },
	}
	var all []compat.API
	for _, name := range names {
		all = append(all, made[name]())
	}
	return all
}

// forCodeOcean returns how the Poseidon API changes the environments that CodeOcean puts. They
// have few MHz, because Nomad treats MHz as shares. On this machine MHz are limits, and a program
// with so few would take minutes to start.
func forCodeOcean(cluster string) poseidon.Options {
	if cluster == config.ClusterNomad {
		return poseidon.Options{Isolation: runtime.IsolationCluster}
	}
	return poseidon.Options{LeastCPUMHz: runtime.DefaultResources().CPUMHz}
}
