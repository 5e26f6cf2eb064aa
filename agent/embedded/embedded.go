// Package embedded holds the agent's binaries, built for the machines that
// runners are on, so that a server brings them along.
package embedded

import (
	"embed"
	"fmt"
	"io"
)

// The directory is embedded rather than its files, so that this builds before
// they do.
//
//go:embed bin
var binaries embed.FS

// Binary returns the agent for an architecture, as GOARCH names it.
func Binary(arch string) ([]byte, error) {
	binary, err := binaries.ReadFile(path(arch))
	if err != nil {
		return nil, fmt.Errorf(`no agent for %s is embedded: run "make build"`, arch)
	}
	return binary, nil
}

func path(arch string) string { return "bin/agent-linux-" + arch }

// open returns the agent for an architecture, of which nothing is copied.
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
