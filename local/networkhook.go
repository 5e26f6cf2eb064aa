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
	mapped, err := h.c.network.ports.Open(string(h.e.id), address, wanted(env.Network.ExposedPorts, had))
	if err != nil && request.Restored {
		h.reached(nil) // where it was, another program may be
		h.c.report("runner "+string(h.e.id), fmt.Sprintf("its ports aren't mapped any more: %v", err))
		return err
	}
	if err != nil {
		response.Unusable = &taskrunner.Failure{Message: "its ports can't be mapped: " + err.Error(), Err: err}
		return nil
	}
	all := make([]runtime.PortMapping, len(mapped))
	for i, m := range mapped {
		all[i] = runtime.PortMapping{ExposedPort: m.Port, Address: m.At.String()}
	}
	h.reached(all)
	return nil
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
	h.c.mu.Unlock()
	h.c.network.ports.Close(string(h.e.id))
	h.c.network.resolver.Remove(address, string(h.e.id))
}
