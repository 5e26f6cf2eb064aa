package access

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/rockpool/rockpool/local/network/ports"
	"github.com/rockpool/rockpool/local/network/resolver"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// A Runner is the network of one runner, and a hook of its task.
type Runner struct {
	a       *Access
	id      runtime.RunnerID
	group   string
	network runtime.Network
	owner   Owner

	// Guarded by Access.mu.
	address  netip.Addr            // at which the machine reaches it
	slot     int                   // of its user ids, if they aren't a listening helper's
	made     uint64                // which of its sandboxes it is: when that started
	ports    []runtime.PortMapping // where they were reached last
	unmapped []ports.Mapping       // ports that it had and that could not be mapped again; nil: none
}

// An Owner has the runner. Its methods may be called at once.
type Owner interface {
	Reached(at []runtime.PortMapping) // notes where its exposed ports are reached
	Leaving() bool                    // it is being removed, or has ended
	Stop(end taskrunner.End)
}

// Runner returns the network of a runner whose ports were reached at some addresses
// before.
func (a *Access) Runner(id runtime.RunnerID, group string, network runtime.Network, had []runtime.PortMapping, owner Owner) *Runner {
	return &Runner{a: a, id: id, group: group, network: network, ports: had, owner: owner}
}

// Hold notes the sandbox that the runner has now: its user ids, when it started, and
// its address, if it has a network.
func (r *Runner) Hold(slot int, started uint64, address netip.Addr) {
	if !address.IsValid() {
		return
	}
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	r.slot, r.made, r.address = slot, started, address
	r.a.runners[r.id] = r
}

// Drop says that the sandbox is about to be removed, and its packet filter with it.
func (r *Runner) Drop() {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if r.a.runners[r.id] == r {
		delete(r.a.runners, r.id)
	}
}

// How long Restore tries to find out whether a network is kept to its policy, and how
// often.
const (
	restoreWithin = 10 * time.Second
	restoreEvery  = 200 * time.Millisecond
)

// Restore returns an error unless the network of a runner that an earlier server made
// with these user ids is kept to its policy. Where nobody can tell it tries again.
func (r *Runner) Restore(ctx context.Context, slot int) error {
	ctx, cancel := context.WithTimeout(ctx, restoreWithin)
	defer cancel()
	for {
		err := r.verify(ctx, slot)
		var refusal *launch.RefusalError
		if err == nil || errors.As(err, &refusal) && (refusal.Changed || refusal.Final) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(restoreEvery):
		}
	}
}

// verify returns an error unless the network is kept to what it was made with.
func (r *Runner) verify(ctx context.Context, slot int) error {
	wish := sandbox.Wish(r.network)
	if wish == nil {
		return nil
	}
	if r.a.config == nil {
		return &launch.RefusalError{Line: r.a.err.Error(), Final: true}
	}
	return r.a.helper.Ask(ctx, r.group, helper.Request{Command: helper.Verify, ID: string(r.id), Slot: slot, Network: wish})
}

// Name implements taskrunner.Hook.
func (r *Runner) Name() string { return "network" }

// Prestart implements taskrunner.Prestarter: what was offered when the environment
// was put may not be offered any more.
func (r *Runner) Prestart(context.Context, taskrunner.PrestartRequest, *taskrunner.PrestartResponse) error {
	if err := r.a.Supported(r.network); err != nil {
		return &taskrunner.Failure{Message: err.Error(), Unrecoverable: true, Err: err}
	}
	return nil
}

// Poststart implements taskrunner.Poststarter. It maps the ports that the runner had,
// where it is one of an earlier server's.
func (r *Runner) Poststart(_ context.Context, request taskrunner.PoststartRequest, response *taskrunner.PoststartResponse) error {
	if !r.network.Used() {
		return nil
	}
	r.close()
	if request.Restored && r.a.resolver == nil { // which health reports; its connections go on
		r.reached(nil)
		return r.a.err
	}
	r.a.mu.Lock()
	address, to := r.address, wanted(r.network.ExposedPorts, r.ports)
	r.a.mu.Unlock()
	if r.network.Access {
		r.a.resolver.Add(address, resolver.Runner{ID: string(r.id), Narrow: r.network.Narrow(), Names: lower(r.network.AllowNames)})
	}
	mapped, err := r.a.ports.Open(string(r.id), address, to)
	switch {
	case err != nil && request.Restored:
		r.unmap(to, err) // where it was, another program may be
		return err
	case err != nil:
		response.Unusable = &taskrunner.Failure{Message: "its ports can't be mapped: " + err.Error(), Err: err}
		return nil
	}
	r.reached(shown(mapped))
	return nil
}

// reached notes where the ports are reached.
func (r *Runner) reached(at []runtime.PortMapping) {
	r.a.mu.Lock()
	r.ports = at
	r.a.mu.Unlock()
	r.owner.Reached(at)
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

func shown(mapped []ports.Mapping) []runtime.PortMapping {
	all := make([]runtime.PortMapping, len(mapped))
	for i, m := range mapped {
		all[i] = runtime.PortMapping{ExposedPort: m.Port, Address: m.At.String()}
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
func (r *Runner) Exited(context.Context, taskrunner.ExitedRequest, *taskrunner.ExitedResponse) error {
	r.close()
	return nil
}

// Stop implements taskrunner.Stopper.
func (r *Runner) Stop(context.Context, taskrunner.StopRequest) error {
	r.close()
	return nil
}

// close ends what is done for the runner's sandbox.
func (r *Runner) close() {
	if r.a.resolver == nil {
		return
	}
	r.a.mu.Lock()
	address, unmapped := r.address, r.unmapped
	r.unmapped = nil
	r.a.mu.Unlock()
	if unmapped != nil {
		r.a.problems.Resolve(r.subject())
	}
	r.a.ports.Close(string(r.id))
	r.a.resolver.Remove(address, string(r.id))
}

func (r *Runner) subject() string { return "ports of runner " + string(r.id) }
