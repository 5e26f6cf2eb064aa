package executor

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/agent"
)

// An image is the environment and working directory that a container image sets for commands. The
// agent is the container's command, so it was started with both.
type image struct {
	variables []string // NAME=value
	dir       string   // "" if it has none of its own
}

// notImages are variables that the image didn't set: Docker, podman or a shell before the agent
// did, or Rockpool for the user of commands.
var notImages = []string{
	"HOSTNAME", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "container", "PWD", "OLDPWD", "SHLVL", "_",
}

// notImagesPrefixes are prefixes of variables that Nomad and its integrations set for tasks.
var notImagesPrefixes = []string{"NOMAD_", "VAULT_", "CONSUL_"}

// imageOf returns the image of a container's command, from its environment and working directory.
// Covered are directories that a runner replaces by its own.
func imageOf(environ []string, dir string, covered ...string) *image {
	i := &image{}
	for _, v := range environ {
		name, _, ok := strings.Cut(v, "=")
		if !ok || name == "" || slices.Contains(notImages, name) ||
			slices.ContainsFunc(notImagesPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		i.variables = append(i.variables, v)
	}
	dir = path.Clean("/" + dir)
	if dir != "/" && !slices.ContainsFunc(covered, func(c string) bool { return dir == c || strings.HasPrefix(dir, c+"/") }) {
		i.dir = dir
	}
	return i
}

func thisImage(workspace string) *image {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	// The directory may be in a volume of the image, which commands can't enter.
	if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 {
		dir = "/"
	}
	return imageOf(os.Environ(), dir, workspace, "/tmp", "/alloc", "/local", "/secrets", "/proc", "/sys", "/dev")
}

func (i *image) complete(start agent.Start) agent.Start {
	if i == nil {
		return start
	}
	at := map[string]int{}
	start.Env = slices.Clone(start.Env)
	for n, v := range start.Env {
		name, _, _ := strings.Cut(v, "=")
		at[name] = n
	}
	for _, v := range i.variables {
		name, _, _ := strings.Cut(v, "=")
		n, there := at[name]
		switch {
		case !there:
			start.Env = append(start.Env, v)
		// The image's value replaces a default, but not a value that the client set.
		case slices.Contains(start.Defaults, name):
			start.Env[n] = v
		}
	}
	if start.Dir == "" {
		start.Dir = i.dir
	}
	return start
}
