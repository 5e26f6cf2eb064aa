// Package embedded contains the agent's programs for all architectures of runners. So a server
// always has the agent that matches it.
package embedded

import (
	"embed"
	"fmt"
	"io"
)

// The directory is embedded rather than its files, so that this package also builds before the
// agents.
//
//go:embed bin
var binaries embed.FS

// Binary returns the agent for an architecture, named as in GOARCH. The error says that this server
// was built without it.
func Binary(arch string) ([]byte, error) {
	binary, err := binaries.ReadFile(path(arch))
	if err != nil {
		return nil, fmt.Errorf(`no agent for %s is embedded: run "make build"`, arch)
	}
	return binary, nil
}

func path(arch string) string { return "bin/agent-linux-" + arch }

// open returns the agent for an architecture without copying it.
func open(arch string) (*io.SectionReader, error) {
	f, err := binaries.Open(path(arch))
	if err != nil {
		return nil, fmt.Errorf(`no agent for %s is embedded: run "make build"`, arch)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(f.(io.ReaderAt), 0, info.Size()), nil
}
