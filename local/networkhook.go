package local

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/rockpool/rockpool/local/network/ports"
	"github.com/rockpool/rockpool/local/network/resolver"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// A networkHook has what the server does for a runner's network while that lives:
// its names are answered, its ports are mapped. The link and the packet filter
// are the helper's.
type networkHook struct {
	c *Cluster
	e *entry
}

func (h *networkHook) Name() string { return "network" }

func (h *networkHook) Prestart(_ context.Context, _ taskrunner.PrestartRequest, _ *taskrunner.PrestartResponse) error {
	h.c.mu.Lock()
	env := h.e.runner.Environment
	h.c.mu.Unlock()
	if err := h.c.supported(env); err != nil { // no longer, since it was put
		return &taskrunner.Failure{Message: err.Error(), Unrecoverable: true, Err: err}
	}
	return nil
}

// Poststart maps the ports that the runner had, where it is one of the last
// server's.
func (h *networkHook) Poststart(_ context.Context, request taskrunner.PoststartRequest, response *taskrunner.PoststartResponse) error {
	h.c.mu.Lock()
	env, had, address := h.e.runner.Environment, h.e.runner.Ports, h.e.address
	h.c.mu.Unlock()
	if !env.Network.Used() {
		return nil
	}
	h.close()
	if request.Restored && h.c.network == nil { // which is told in health; its connections go on
		h.reached(nil)
		return h.c.networkReady()
	}
	if env.Network.Access {
		h.c.network.resolver.Add(address, resolver.Runner{ID: string(h.e.id), Narrow: env.Network.Narrow(), Names: lower(env.Network.AllowNames)})
	}
	to := wanted(env.Network.ExposedPorts, had)
	mapped, err := h.c.network.ports.Open(string(h.e.id), address, to)
	if err != nil && request.Restored {
		h.reached(nil) // where it was, another program may be
		h.c.mu.Lock()
		h.e.unmapped = to
		h.c.mu.Unlock()
		h.c.problems.Report(portsSubject(h.e), fmt.Sprintf("they aren't mapped any more, and will be once that can be done: %v", err))
		return err
	}
	if err != nil {
		response.Unusable = &taskrunner.Failure{Message: "its ports can't be mapped: " + err.Error(), Err: err}
		return nil
	}
	h.reached(shownPorts(mapped))
	return nil
}

func portsSubject(e *entry) string { return "ports of runner " + string(e.id) }

func shownPorts(mapped []ports.Mapping) []runtime.PortMapping {
	all := make([]runtime.PortMapping, len(mapped))
	for i, m := range mapped {
		all[i] = runtime.PortMapping{ExposedPort: m.Port, Address: m.At.String()}
	}
	return all
}

// mapPorts tries again to map what could not be mapped when the server started: its
// port was taken, or no descriptors were left.
func (c *Cluster) mapPorts() {
	var waiting []*entry
	c.mu.Lock()
	for _, e := range c.entries {
		if e.unmapped != nil {
			waiting = append(waiting, e)
		}
	}
	c.mu.Unlock()
	for _, e := range waiting {
		c.mu.Lock()
		address, to := e.address, e.unmapped
		c.mu.Unlock()
		mapped, err := c.network.ports.Open(string(e.id), address, to)
		if err != nil {
			continue // as is told
		}
		c.mu.Lock()
		ended := e.unmapped == nil // meanwhile
		if !ended {
			e.unmapped, e.runner.Ports = nil, shownPorts(mapped)
			c.problems.Resolve(portsSubject(e))
		}
		c.mu.Unlock()
		if ended {
			c.network.ports.Close(string(e.id))
			continue
		}
		c.changes.Send(e.environment)
	}
}

// reached notes where the runner's ports are reached.
func (h *networkHook) reached(at []runtime.PortMapping) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.e.runner.Ports = at
}

// wanted returns the mappings of ports, with the addresses that they had.
func wanted(exposed []int, had []runtime.PortMapping) []ports.Mapping {
	all := make([]ports.Mapping, len(exposed))
	for i, port := range exposed {
		all[i].Port = port
		for _, m := range had {
			if at, err := netip.ParseAddrPort(m.Address); err == nil && m.ExposedPort == port {
				all[i].At = at
			}
		}
	}
	return all
}

func lower(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = strings.ToLower(name)
	}
	return all
}

// Exited implements taskrunner.Exiter: nothing is there to be reached.
func (h *networkHook) Exited(context.Context, taskrunner.ExitedRequest, *taskrunner.ExitedResponse) error {
	h.close()
	return nil
}

// Stop implements taskrunner.Stopper.
func (h *networkHook) Stop(context.Context, taskrunner.StopRequest) error {
	h.close()
	return nil
}

func (h *networkHook) close() {
	if h.c.network == nil {
		return
	}
	h.c.mu.Lock()
	address := h.e.address
	if h.e.unmapped != nil {
		h.e.unmapped = nil
		h.c.problems.Resolve(portsSubject(h.e))
	}
	h.c.mu.Unlock()
	h.c.network.ports.Close(string(h.e.id))
	h.c.network.resolver.Remove(address, string(h.e.id))
}
