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
)

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
