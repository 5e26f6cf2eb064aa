// Package sandbox translates an environment into a request for rockpool-sandbox (package main in
// cmd), which makes and removes sandboxes.
//
// A sandbox is a set of new namespaces around a read-only root that all sandboxes share (see
// spec.BuildRoot). The namespaces are user (with 65536 ids of its own), pid, mount, ipc, uts,
// cgroup, network and time. Writable directories are tmpfs file systems with a size limit. Limits
// of memory, processes and CPU time are set, and read back from the kernel. The first process is
// Rockpool's agent. A sandbox doesn't depend on the server process: it lives until it is removed.
package sandbox

import (
	"embed"
	"errors"
	"io/fs"
	"path"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
)

// Supported returns INVALID_INPUT, naming the field, for an environment that this version can't run
// on a single machine.
func Supported(env runtime.Environment) error {
	switch {
	case env.Image != runtime.DefaultImage && env.Pin.Digest == "":
		return runtime.Invalid("image", "isn't pinned to a digest: put the environment again")
	case env.Isolation != runtime.IsolationNamespaces && env.Isolation != runtime.IsolationGVisor:
		return runtime.Invalid("isolation", "must be %s or %s on a single machine", runtime.IsolationNamespaces, runtime.IsolationGVisor)
	case env.Isolation == runtime.IsolationGVisor && env.Runtime != "":
		return runtime.Invalid("runtime", "must be empty with %s, whose runtime is the server's setting gvisor-runtime", runtime.IsolationGVisor)
	}
	return nil
}

// Request returns the helper's request for a sandbox of an environment. It consists of numbers and
// names only; the helper decides what they mean on this machine.
func Request(id string, env runtime.Environment, slot int) helper.Request {
	resources := spec.Resources(env.Resources)
	return helper.Request{
		Command: helper.Create, ID: id, Slot: slot, Image: env.Pin.Digest, Resources: &resources,
		Runtime: Runtime(env), Zygote: env.Warm != nil, Network: NetworkRequest(env.Network),
	}
}

// Runtime returns the name of the OCI runtime that makes an environment's sandboxes, "" for Rockpool
// itself.
func Runtime(env runtime.Environment) string {
	if env.Isolation == runtime.IsolationGVisor {
		return oci.GVisor
	}
	return env.Runtime
}

// Footprint returns the most that a runner takes of the machine: its resources, plus what its isolation
// tier needs.
func Footprint(env runtime.Environment) runtime.Resources {
	if env.Isolation != runtime.IsolationGVisor {
		return env.Resources
	}
	return runtime.Resources(spec.GVisorFootprint(spec.Resources(env.Resources)))
}

// NetworkRequest translates a validated network for the helper, nil without a network.
func NetworkRequest(n runtime.Network) *network.Request {
	if !n.Used() {
		return nil
	}
	w := &network.Request{Egress: n.Access, Narrow: n.Access && n.Narrow(), Bandwidth: n.BandwidthMbit}
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

// Group returns the path of a sandbox's cgroup.
func Group(parent, id string) string { return path.Join("/", parent, id) }

//go:embed bin
var embedded embed.FS

// Binary returns the embedded program rockpool-sandbox, or an error that says how to embed it.
func Binary() ([]byte, error) {
	data, err := embedded.ReadFile("bin/rockpool-sandbox")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New(`the program rockpool-sandbox isn't built in: run "make build"`)
	}
	return data, err
}

// A Failure is an error of a runner's start, with what clients may know about it.
type Failure struct {
	Message       string // shown to clients, so it names no paths of the machine
	Unrecoverable bool   // retrying can't help
	Err           error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// FailureOf returns err as a Failure, with a general message if it isn't one.
func FailureOf(err error) Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return Failure{f.Message, f.Unrecoverable, err}
	}
	return Failure{Message: "it couldn't be started; the server's log says why", Err: err}
}
