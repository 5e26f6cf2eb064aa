package sandbox

import (
	"path"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
)

// Supported returns INVALID_INPUT, naming the field, for an environment that
// this version can't run here.
func Supported(env runtime.Environment) error {
	switch {
	case env.Image != runtime.DefaultImage && env.Pin.Digest == "":
		return runtime.Invalid("image", "isn't pinned to a digest: put it again")
	case env.Isolation != runtime.IsolationNamespaces:
		return runtime.Invalid("isolation", "must be %s: %s isn't available yet in this version", runtime.IsolationNamespaces, env.Isolation)
	}
	return nil
}

// Request returns what is asked of the helper for a sandbox of an environment.
// It carries what the environment says as numbers and names alone: what that
// means on this machine is the helper's to say.
func Request(id string, env runtime.Environment, slot int) helper.Request {
	resources := spec.Resources(env.Resources)
	return helper.Request{Command: helper.Create, ID: id, Slot: slot, Image: env.Pin.Digest, Resources: &resources, Network: Wish(env.Network)}
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
