package server

import (
	"os"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
)

// A Starter is an environment that a first start makes, if the machine has its
// program.
type Starter struct {
	ID        runtime.EnvironmentID
	Program   string
	memoryMiB int
	processes int
}

// Starters are what is commonly found. A compiler and node want more room than
// a script: node alone starts ten threads and reserves much.
func Starters() []Starter {
	return []Starter{
		{ID: "shell", Program: "/bin/sh", memoryMiB: 256, processes: 128},
		{ID: "python", Program: "/usr/bin/python3", memoryMiB: 256, processes: 128},
		{ID: "node", Program: "/usr/bin/node", memoryMiB: 512, processes: 256},
		{ID: "c", Program: "/usr/bin/cc", memoryMiB: 512, processes: 128},
	}
}

// FirstEnvironments returns those of the starters whose program exists.
func FirstEnvironments() ([]runtime.Environment, error) {
	var all []runtime.Environment
	for _, s := range Starters() {
		if !s.Installed() {
			continue
		}
		env, err := s.Input().Environment()
		if err != nil {
			return nil, err
		}
		all = append(all, env)
	}
	return all, nil
}

// Installed reports whether the machine has its program.
func (s Starter) Installed() bool {
	_, err := os.Stat(s.Program)
	return err == nil
}

// Input creates the environment where there is none.
func (s Starter) Input() engine.PutEnvironmentInput {
	onlyCreate := 0
	return engine.PutEnvironmentInput{ID: s.ID, IfRevision: &onlyCreate, MemoryMiB: &s.memoryMiB, Processes: &s.processes}
}
