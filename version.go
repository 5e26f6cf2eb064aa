package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/rockpool/rockpool/cli"
)

// release is this source's version; a build from a tag says more.
const release = "0.1.0-dev"

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(s cli.Streams) error {
	_, err := fmt.Fprintln(s.Out, "rockpool", version())
	return err
}

// version returns the release with the commit that the program was built from,
// where Go recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	commit, modified := "", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = "+" + setting.Value[:min(12, len(setting.Value))]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = ".modified"
		}
	}
	if commit == "" {
		return release
	}
	return strings.TrimSpace(release + commit + modified)
}
