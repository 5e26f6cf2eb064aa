package host

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/agent"
)

// An image is what a container's image says of commands. The agent is the container's command, so it
// was started with that.
type image struct {
	variables []string // NAME=value
	dir       string   // "": it has none of its own
}

// notImages are variables that others than the image set: Docker and podman, a shell that was there before the
// agent, or we, for the user that commands run as.
var notImages = []string{
	"HOSTNAME", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "container", "PWD", "OLDPWD", "SHLVL", "_",
}

// notImagesPrefixes are those of Nomad, and of what it may hand to tasks.
var notImagesPrefixes = []string{"NOMAD_", "VAULT_", "CONSUL_"}

// imageOf returns what the environment and the working directory of a container's command say of its
// image. Covered are directories that a runner has of its own.
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

// thisImage returns that of the container around this process.
func thisImage(workspace string) *image {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	// A volume of the image is closed, and the directory may be in it.
	if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 {
		dir = "/"
	}
	return imageOf(os.Environ(), dir, workspace, "/tmp", "/alloc", "/local", "/secrets", "/proc", "/sys", "/dev")
}

// complete adds what the image says to a start.
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
		case slices.Contains(start.Defaults, name):
			start.Env[n] = v
		}
	}
	if start.Dir == "" {
		start.Dir = i.dir
	}
	return start
}
