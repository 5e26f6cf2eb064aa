package sandbox

import (
	"path"

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
	case env.Network.Access:
		return runtime.Invalid("network.access", "must be false: network access isn't available yet in this version")
	case len(env.Network.ExposedPorts) > 0:
		return runtime.Invalid("network.exposedPorts", "must be empty: exposed ports aren't available yet in this version")
	}
	return nil
}

// Request returns what is asked of the helper for a sandbox of an environment.
// It carries what the environment says as numbers and names alone: what that
// means on this machine is the helper's to say.
func Request(id string, env runtime.Environment, slot int) helper.Request {
	resources := spec.Resources(env.Resources)
	return helper.Request{Command: helper.Create, ID: id, Slot: slot, Image: env.Pin.Digest, Resources: &resources}
}

// Group returns the cgroup of a sandbox.
func Group(parent, id string) string { return path.Join("/", parent, id) }
