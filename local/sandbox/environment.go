package sandbox

import (
	"path"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
)

// Supported returns INVALID_INPUT, naming the field, for an environment that
// this version can't run here.
func Supported(env runtime.Environment) error {
	switch {
	case env.Image != runtime.DefaultImage && env.Pin.Digest == "":
		return runtime.Invalid("image", "isn't pinned to a digest: put it again")
	case env.Isolation != runtime.IsolationNamespaces && env.Isolation != runtime.IsolationGVisor:
		return runtime.Invalid("isolation", "must be %s or %s on a single machine", runtime.IsolationNamespaces, runtime.IsolationGVisor)
	case env.Isolation == runtime.IsolationGVisor && env.Runtime != "":
		return runtime.Invalid("runtime", "must be empty with %s, whose runtime is the server's setting gvisor-runtime", runtime.IsolationGVisor)
	}
	return nil
}

// Request returns what is asked of the helper for a sandbox of an environment.
// It carries what the environment says as numbers and names alone: what that
// means on this machine is the helper's to say.
func Request(id string, env runtime.Environment, slot int) helper.Request {
	resources := spec.Resources(env.Resources)
	return helper.Request{
		Command: helper.Create, ID: id, Slot: slot, Image: env.Pin.Digest, Resources: &resources,
		Runtime: Runtime(env), Zygote: env.Warm != nil, Network: Wish(env.Network),
	}
}

// Runtime returns the name of the runtime that makes the sandboxes of an
// environment, "" for Rockpool's own.
func Runtime(env runtime.Environment) string {
	if env.Isolation == runtime.IsolationGVisor {
		return oci.GVisor
	}
	return env.Runtime
}

// Takes returns what a runner takes of the machine at most: its resources, and
// what its isolation needs beside them.
func Takes(env runtime.Environment) runtime.Resources {
	if env.Isolation != runtime.IsolationGVisor {
		return env.Resources
	}
	return runtime.Resources(spec.TakenByGVisor(spec.Resources(env.Resources)))
}

// Wish returns what a network that was validated is to the helper; nil: nothing.
func Wish(n runtime.Network) *network.Wish {
	if !n.Used() {
		return nil
	}
	w := &network.Wish{Egress: n.Access, Narrow: n.Access && n.Narrow(), Bandwidth: n.BandwidthMbit}
	for _, text := range n.Allow {
		if prefix, err := runtime.ParseNetwork(text); err == nil {
			w.Allow = append(w.Allow, prefix)
		}
	}
	for _, port := range n.ExposedPorts {
		w.Ports = append(w.Ports, uint16(port))
	}
	return w
}

// Group returns the cgroup of a sandbox.
func Group(parent, id string) string { return path.Join("/", parent, id) }
