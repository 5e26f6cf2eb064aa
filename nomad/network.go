package nomad

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// Nomad doesn't report whether a driver gave a task a network. For example, Docker's default
// network is none if its daemon has no bridge. So this server inspects runners that should have
// one.

// networks are the networks of runners whose environments have network access.
type networks struct {
	mu    sync.Mutex // guards found
	found map[runtime.RunnerID]network
}

// A network is the result of inspecting a runner.
type network int

// The results of an inspection.
const (
	networkUnknown network = iota // being inspected, or the inspection failed
	networkThere
	networkNone // loopback only
)

// inspectWithin bounds one inspection.
const inspectWithin = 10 * time.Second

// checkNetworks reports the environments whose runners should have a network and have none. It
// inspects one more runner of each environment.
func (c *Cluster) checkNetworks() {
	connected := map[runtime.RunnerID]runtime.EnvironmentID{}
	c.runners.mu.Lock()
	for id, e := range c.runners.entries {
		if env := e.runner.Environment; env.Network.Access && e.ready != nil && !e.removing && e.runner.State != runtime.RunnerGone {
			connected[id] = env.ID
		}
	}
	c.runners.mu.Unlock()
	// due has at most one runner of each environment, so a refresh causes few inspections.
	bare, due := map[runtime.EnvironmentID]int{}, map[runtime.EnvironmentID]runtime.RunnerID{}
	c.networks.mu.Lock()
	maps.DeleteFunc(c.networks.found, func(id runtime.RunnerID, _ network) bool { return connected[id] == "" })
	for id, env := range connected {
		switch found, looked := c.networks.found[id]; {
		case found == networkNone:
			bare[env]++
		case !looked:
			due[env] = id
		}
	}
	for _, id := range due {
		c.networks.found[id] = networkUnknown
	}
	c.networks.mu.Unlock()
	for _, id := range due {
		c.group.Go(func(ctx context.Context) { c.inspectNetwork(ctx, id) })
	}
	for env, count := range bare {
		c.problems.Report(networkSubject(env), fmt.Sprintf("it has network access, and %d of its runners have no network but loopback, since their driver has none on that node: "+
			"name a network with --nomad-network-mode, or give the node's Docker daemon a bridge", count))
	}
	c.problems.ResolveFunc(func(subject string) bool {
		env, ok := strings.CutPrefix(subject, networkSubject(""))
		return ok && bare[runtime.EnvironmentID(env)] == 0
	})
}

// inspectNetwork inspects whether a runner has a network. If that fails the result stays unknown.
func (c *Cluster) inspectNetwork(ctx context.Context, id runtime.RunnerID) {
	ctx, cancel := context.WithTimeout(ctx, inspectWithin)
	defer cancel()
	loopback, others := false, false
	conn, err := c.stream(ctx, id, false)
	if err == nil {
		err = agent.ListFiles(ctx, conn, agent.ListDir{Path: "/sys/class/net"}, func(f agent.FileInfo) error {
			own := string(f.Path) == "lo"
			loopback, others = loopback || own, others || !own
			return nil
		})
	}
	found := networkThere
	switch {
	case err != nil:
		c.config.Logger.Debug("a runner's network can't be inspected", zap.String("runner", string(id)), zap.Error(c.nomad.Redact(err)))
		return
	case loopback && !others:
		found = networkNone
	}
	c.networks.mu.Lock()
	c.networks.found[id] = found
	c.networks.mu.Unlock()
	if found == networkNone {
		c.refresher.soon() // the refresh reports the problem
	}
}

// networkSubject is the subject of the problem of an environment whose runners have no network.
// With "" it is the beginning that all of them share.
func networkSubject(id runtime.EnvironmentID) string { return "network of environment " + string(id) }
