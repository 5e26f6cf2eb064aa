// Package sandbox turns an environment into a request, and has rockpool-sandbox
// (package main in cmd) make and remove sandboxes by it (package spec).
//
// A sandbox is a set of own namespaces (user with 65536 ids of its own, pid,
// mount, ipc, uts, cgroup, network, time) around a read-only root that all
// sandboxes share (see spec.BuildRoot), with capped tmpfs file systems where
// something can be written, and with limits of memory, processes and CPU time
// that were read back from the kernel. Its first process is Rockpool's agent.
// Nothing of it hangs on the server: it lives until it is removed.
package sandbox

import (
	"embed"
	"errors"
	"io/fs"
)

//go:embed bin
var embedded embed.FS

// Binary returns the program rockpool-sandbox that was built into this one,
// and an error that says what to do if it wasn't.
func Binary() ([]byte, error) {
	data, err := embedded.ReadFile("bin/rockpool-sandbox")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New(`the program rockpool-sandbox isn't built in: run "make build"`)
	}
	return data, err
}
