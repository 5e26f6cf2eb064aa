// Package embedded holds the agent's binaries, built for the machines that
// runners are on, so that a server brings them along.
package embedded

import (
	"embed"
	"fmt"
)

// The directory is embedded rather than its files, so that this builds before
// they do.
//
//go:embed bin
var binaries embed.FS

// Binary returns the agent for an architecture, as GOARCH names it.
func Binary(arch string) ([]byte, error) {
	binary, err := binaries.ReadFile("bin/agent-linux-" + arch)
	if err != nil {
		return nil, fmt.Errorf(`no agent for %s is embedded: run "make build"`, arch)
	}
	return binary, nil
}
