package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// rootMount is where the root directory is mounted, in the helper's own mount
// namespace only. The sandbox's root user must be able to come here, which it
// often can't in the server's data directory.
const rootMount = "/run/rockpool/root"

// create makes the sandbox, starts its first process, and reads back that the
// limits hold. After an error something may be left, for remove.
func create(c helper.Config, q *helper.Request, trees cgroup.Hierarchies) (helper.Answer, error) {
	if err := helper.CheckListener(3); err != nil {
		return helper.Answer{}, err
	}
	listener := os.NewFile(3, "listener")
	c.Machine.Undivided = trees.Divisible()
	s := spec.New(spec.Sandbox{Group: c.Group(q.ID), Slot: q.Slot, Resources: *q.Resources, Root: rootOf(c, q)}, c.Machine)
	limits, err := spec.Limits(s)
	if err != nil {
		return helper.Answer{}, finalError{err}
	}
	if err := mountRoot(c, q, s); err != nil {
		return helper.Answer{}, err
	}
	args, descriptors, err := divide(c, q, s, trees)
	if err != nil {
		return helper.Answer{}, err
	}
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: q.ID, Spec: s})
	if err != nil {
		return helper.Answer{}, fmt.Errorf("convert spec: %w", err)
	}
	container, err := libcontainer.Create(c.State, q.ID, config)
	if err != nil {
		return helper.Answer{}, fmt.Errorf("create: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return helper.Answer{}, err
	}
	p := s.Process
	limited, err := rlimits(p.Rlimits)
	if err != nil {
		return helper.Answer{}, finalError{err}
	}
	process := &libcontainer.Process{
		Init:            true,
		Args:            append(p.Args, args...),
		Env:             p.Env,
		Cwd:             p.Cwd,
		UID:             int(p.User.UID),
		GID:             int(p.User.GID),
		NoNewPrivileges: &p.NoNewPrivileges,
		Rlimits:         limited,
		Stdin:           null,
		Stdout:          null,
		Stderr:          null,
		ExtraFiles:      append([]*os.File{listener}, descriptors...),
	}
	if err := container.Run(process); err != nil {
		return helper.Answer{}, fmt.Errorf("run: %w", err)
	}
	state, err := container.State()
	if err != nil {
		return helper.Answer{}, fmt.Errorf("state: %w", err)
	}
	groups, err := trees.Check(state.InitProcessPid, c.Group(q.ID), limits)
	if err != nil {
		return helper.Answer{}, finalError{fmt.Errorf("the limits didn't take: %w", err)}
	}
	return helper.Answer{PID: state.InitProcessPid, Start: state.InitProcessStartTime, Groups: groups}, nil
}

// rootOf says what the sandbox is made around. It is reached at rootMount.
func rootOf(c helper.Config, q *helper.Request) spec.Root {
	if q.Image == "" {
		return spec.Root{Path: rootMount}
	}
	return spec.Root{Path: rootMount, Image: true, Agent: filepath.Join(c.Root, spec.AgentPath)}
}

// divide makes the groups of the sandbox's commands, where they can be apart,
// and returns what its first process is told of them and gets: the argument
// --groups, and their directories from descriptor 4 on. They are reached through
// descriptors alone: no cgroup is mounted inside.
func divide(c helper.Config, q *helper.Request, s *specs.Spec, trees cgroup.Hierarchies) (args []string, dirs []*os.File, err error) {
	if c.Machine.Undivided != nil {
		return nil, nil, nil
	}
	parts, err := trees.Divide(c.Group(q.ID), int(s.Linux.UIDMappings[0].HostID), spec.Commands(*q.Resources))
	if err != nil {
		return nil, nil, finalError{fmt.Errorf("the commands' groups: %w", err)}
	}
	var names []string
	for _, p := range parts {
		names, dirs = append(names, p.Controller), append(dirs, p.Dir)
	}
	return []string{"--groups", strings.Join(names, ",")}, dirs, nil
}

// A finalError won't be another the next time. That what is to keep programs
// apart didn't take is one: nobody is to try until it is slipped through.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }
