package main

import (
	"os"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
)

// A starter is an environment that a first start makes, if the machine has its
// program.
type starter struct {
	id        runtime.EnvironmentID
	program   string
	memoryMiB int
	processes int
}

// starters are what is commonly found. A compiler and node want more room than
// a script: node alone starts ten threads and reserves much.
func starters() []starter {
	return []starter{
		{id: "shell", program: "/bin/sh", memoryMiB: 256, processes: 128},
		{id: "python", program: "/usr/bin/python3", memoryMiB: 256, processes: 128},
		{id: "node", program: "/usr/bin/node", memoryMiB: 512, processes: 256},
		{id: "c", program: "/usr/bin/cc", memoryMiB: 512, processes: 128},
	}
}

// firstEnvironments returns those of the starters whose program exists.
func firstEnvironments() ([]runtime.Environment, error) {
	var all []runtime.Environment
	for _, s := range starters() {
		if !s.there() {
			continue
		}
		env, err := s.input().Environment()
		if err != nil {
			return nil, err
		}
		all = append(all, env)
	}
	return all, nil
}

// there reports whether the machine has its program.
func (s starter) there() bool {
	_, err := os.Stat(s.program)
	return err == nil
}

// input makes the environment where there is none.
func (s starter) input() engine.PutEnvironmentInput {
	onlyCreate := 0
	return engine.PutEnvironmentInput{ID: s.id, IfRevision: &onlyCreate, MemoryMiB: &s.memoryMiB, Processes: &s.processes}
}
