package sandbox

import (
	"path"

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
	return helper.Request{Command: helper.Create, ID: id, Slot: slot, Image: env.Pin.Digest, Resources: &resources, Runtime: Runtime(env)}
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

// Group returns the cgroup of a sandbox.
func Group(parent, id string) string { return path.Join("/", parent, id) }
