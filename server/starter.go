package server

import (
	"os"
	"strings"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/request"
)

// A Starter is an environment that the first start creates if its program is installed.
type Starter struct {
	ID        runtime.EnvironmentID
	Program   string
	memoryMiB int
	processes int
}

// Starters returns the environments for common languages. A compiler and node need more memory and
// processes than a script: node alone starts ten threads and reserves much memory.
func Starters() []Starter {
	return []Starter{
		{ID: "shell", Program: "/bin/sh", memoryMiB: 256, processes: 128},
		{ID: "python", Program: "/usr/bin/python3", memoryMiB: 256, processes: 128},
		{ID: "node", Program: "/usr/bin/node", memoryMiB: 512, processes: 256},
		{ID: "c", Program: "/usr/bin/cc", memoryMiB: 512, processes: 128},
	}
}

// FirstEnvironments returns the environments of the starters whose program is installed.
func FirstEnvironments() ([]runtime.Environment, error) {
	var all []runtime.Environment
	for _, s := range Starters() {
		if !s.Installed() {
			continue
		}
		env, err := s.Input().New()
		if err != nil {
			return nil, err
		}
		all = append(all, env)
	}
	return all, nil
}

// Installed reports whether the program is installed on this machine.
func (s Starter) Installed() bool {
	_, err := os.Stat(s.Program)
	return err == nil
}

// Input returns the input that creates the environment unless it exists.
func (s Starter) Input() request.Environment {
	onlyCreate := 0
	// Revision 0 only creates: an existing environment stays.
	return request.Environment{ID: s.ID, IfRevision: &onlyCreate, MemoryMiB: &s.memoryMiB, Processes: &s.processes}
}

// FromRecipe returns the input that creates an environment for a language unless it exists. It
// returns false if one of the language's programs isn't installed on this machine.
func FromRecipe(id runtime.EnvironmentID, r language.Recipe) (request.Environment, bool) {
	for _, command := range [][]string{r.Build, r.Run, r.Version} {
		if len(command) > 0 && !strings.Contains(command[0], "{") && host.FindProgram(command[0]) == "" {
			return request.Environment{}, false
		}
	}
	positive := func(limit int) *int {
		if limit > 0 {
			return &limit
		}
		return nil
	}
	onlyCreate, l := 0, r.Limits
	return request.Environment{
		ID: id, IfRevision: &onlyCreate, MemoryMiB: positive(l.MemoryMiB), Processes: positive(l.Processes),
		WorkspaceMiB: positive(l.WorkspaceMiB), DefaultTimeLimit: positive(l.Seconds),
	}, true
}
