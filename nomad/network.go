package nomad

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// Nomad doesn't report whether a driver gave a task a network. For example, Docker's default
// network is none if its daemon has no bridge. So this server inspects runners that should have
// one.

type network int

// The results of an inspection.
const (
	networkUninspected network = iota
	networkUnknown             // being inspected, or the inspection failed
	networkThere
	networkNone // loopback only
)

const inspectWithin = 10 * time.Second

// checkNetworks reports the environments whose runners should have a network and have none. It
// inspects one more runner of each environment.
func (c *Cluster) checkNetworks() {
	// due has at most one runner of each environment, so a refresh causes few inspections.
	bare, due := map[runtime.EnvironmentID]int{}, map[runtime.EnvironmentID]*entry{}
	c.runners.mu.Lock()
	for _, e := range c.runners.entries {
		env := e.runner.Environment
		if !env.Network.Access || e.ready == nil || e.removing || e.runner.State == runtime.RunnerGone {
			continue
		}
		switch e.network {
		case networkNone:
			bare[env.ID]++
		case networkUninspected:
			due[env.ID] = e
		}
	}
	for _, e := range due {
		e.network = networkUnknown
	}
	c.runners.mu.Unlock()
	for _, e := range due {
		c.group.Go(func(ctx context.Context) { c.inspectNetwork(ctx, e) })
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
func (c *Cluster) inspectNetwork(ctx context.Context, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, inspectWithin)
	defer cancel()
	found := networkThere
	loopback, others := false, false
	conn, err := c.stream(ctx, e.runner.ID, false)
	if err == nil {
		err = agent.ListFiles(ctx, conn, agent.ListDir{Path: "/sys/class/net"}, func(f agent.FileInfo) error {
			own := string(f.Path) == "lo"
			loopback, others = loopback || own, others || !own
			return nil
		})
	}
	switch {
	case err != nil:
		c.config.Logger.Debug("a runner's network can't be inspected", zap.String("runner", string(e.runner.ID)), zap.Error(c.nomad.Redact(err)))
		return
	case loopback && !others:
		found = networkNone
		defer c.refresher.soon() // the refresh reports the problem
	}
	c.runners.mu.Lock()
	e.network = found
	c.runners.mu.Unlock()
}

// networkSubject is the subject of such a problem. It begins with networkSubject("").
func networkSubject(id runtime.EnvironmentID) string { return "network of environment " + string(id) }
