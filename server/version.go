package server

import (
	"runtime/debug"
	"strings"
)

// Release is the version of this source; Version adds the commit.
const Release = "0.1.0-dev"

// Version returns the release with the commit that the program was built from,
// where Go recorded it.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Release
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
		return Release
	}
	return strings.TrimSpace(Release + commit + modified)
}
