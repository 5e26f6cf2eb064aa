package access

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// A Runner is the network of one runner. Its methods are safe for concurrent use.
type Runner struct {
	a       *Access
	id      runtime.RunnerID
	group   string
	network runtime.Network
	owner   Owner

	// The fields below are guarded by Access.mu.
	address  netip.Addr            // its address on the machine's side
	slot     int                   // number of its range of user ids; unused with a listening helper
	made     uint64                // start time of its sandbox, to tell sandboxes apart
	ports    []runtime.PortMapping // the last mappings
	unmapped []runtime.PortMapping // earlier mappings that couldn't be restored yet
}

// An Owner is the runner that a network belongs to. Its methods are safe for concurrent use.
type Owner interface {
	PortsMapped(at []runtime.PortMapping) // records the addresses of its exposed ports
	Ending() bool                         // reports whether it is being removed or has ended
	StopOutside(message string)           // ends it with STOPPED_OUTSIDE
}

// Runner returns the network of a runner. had are the mappings that its ports had before a restart.
func (a *Access) Runner(id runtime.RunnerID, group string, network runtime.Network, had []runtime.PortMapping, owner Owner) *Runner {
	return &Runner{a: a, id: id, group: group, network: network, ports: had, owner: owner}
}

// Record records the runner's present sandbox: its user ids, its start time, and its address, which
// is invalid without a network.
func (r *Runner) Record(slot int, started uint64, address netip.Addr) {
	if !address.IsValid() {
		return
	}
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	r.slot, r.made, r.address = slot, started, address
	r.a.runners[r.id] = r
}

// Drop records that the sandbox, and its packet filter with it, is about to be removed.
func (r *Runner) Drop() {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	if r.a.runners[r.id] == r {
		delete(r.a.runners, r.id)
	}
}

// restoreWithin bounds how long Restore tries to verify a network; restoreEvery is the interval of
// the tries.
const (
	restoreWithin = 10 * time.Second
	restoreEvery  = 200 * time.Millisecond
)

// Restore returns an error unless the network of a runner of an earlier server, with these user
// ids, still enforces its policy. While that can't be determined, it retries.
func (r *Runner) Restore(ctx context.Context, slot int) error {
	ctx, cancel := context.WithTimeout(ctx, restoreWithin)
	defer cancel()
	for {
		err := r.verify(ctx, slot)
		refusal, refused := errors.AsType[*launch.RefusalError](err)
		if err == nil || refused && (refusal.Changed || refusal.Final) || backoff.Sleep(ctx, restoreEvery) != nil {
			return err
		}
	}
}

// verify returns an error unless the network's rules are as they were made.
func (r *Runner) verify(ctx context.Context, slot int) error {
	wish := sandbox.NetworkRequest(r.network)
	if wish == nil {
		return nil
	}
	if r.a.config == nil {
		return &launch.RefusalError{Line: r.a.err.Error(), Final: true}
	}
	return r.a.helper.Do(ctx, r.group, helper.Request{Command: helper.Verify, ID: string(r.id), Slot: slot, Network: wish})
}

// Map maps the ports of a new sandbox, and serves its DNS queries. An error means that the runner is
// unusable. After a restart of the server it restores the earlier mappings. If that fails, the
// runner's connections stay, and mapping is retried.
func (r *Runner) Map(restored bool) error {
	if !r.network.Used() {
		return nil
	}
	// An earlier start may have left its ports mapped.
	r.Close()
	if restored && r.a.resolver == nil { // health reports the cause
		r.reached(nil)
		return nil
	}
	r.a.mu.Lock()
	address, to := r.address, wanted(r.network.ExposedPorts, r.ports)
	r.a.mu.Unlock()
	if r.network.Access {
		r.a.resolver.Add(address, &dnsClient{id: string(r.id), narrow: r.network.Narrow(), names: lower(r.network.AllowNames)})
	}
	mapped, err := r.a.ports.Open(string(r.id), address, to)
	switch {
	case err != nil && restored:
		r.unmap(to, err) // another program may use the earlier port
		return nil
	case err != nil:
		return &sandbox.Failure{Message: "its ports couldn't be mapped: " + err.Error(), Err: err}
	}
	r.reached(mapped)
	return nil
}

func (r *Runner) reached(at []runtime.PortMapping) {
	r.a.mu.Lock()
	r.ports = at
	r.a.mu.Unlock()
	r.owner.PortsMapped(at)
}

func wanted(exposed []int, had []runtime.PortMapping) []runtime.PortMapping {
	all := make([]runtime.PortMapping, len(exposed))
	for i, port := range exposed {
		all[i].ExposedPort = port
		for _, m := range had {
			if m.ExposedPort == port {
				all[i].Address = m.Address
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

// Close stops serving the runner's sandbox.
func (r *Runner) Close() {
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
