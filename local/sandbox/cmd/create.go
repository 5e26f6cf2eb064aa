package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
)

// rootMount is where the skeleton is mounted, in the helper's own mount
// namespace only. The sandbox's root user must be able to come here, which it
// often can't in the server's data directory.
const rootMount = "/run/rockpool/root"

// create makes the sandbox, starts its first process, and reads back that the
// limits hold. After an error something may be left, for remove.
func create(q *helper.Request, trees cgroup.Hierarchies, runtimes oci.Runtimes) (helper.Answer, error) {
	limits, err := checkSpec(q)
	if err != nil {
		return helper.Answer{}, finalError{err}
	}
	if q.Runtime == oci.GVisor {
		if err := mountRoot(q.Spec, q.MapRoot); err != nil {
			return helper.Answer{}, err
		}
		return createGVisor(runtimes, q, trees, limits)
	}
	listener := os.NewFile(3, "listener")
	if accepts, err := unix.GetsockoptInt(3, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || accepts != 1 {
		return helper.Answer{}, errors.New("descriptor 3 isn't a listening socket")
	}
	if err := mountRoot(q.Spec, q.MapRoot); err != nil {
		return helper.Answer{}, err
	}
	args, descriptors, err := divide(q, trees)
	if err != nil {
		return helper.Answer{}, err
	}
	check := func(pid int) (cgroup.Groups, error) {
		groups, err := trees.Check(pid, q.Cgroup, limits)
		if err != nil {
			err = finalError{fmt.Errorf("the limits didn't take: %w", err)}
		}
		return groups, err
	}
	p := q.Spec.Process
	p.Args = append(p.Args, args...)
	descriptors = append([]*os.File{listener}, descriptors...)
	if q.Runtime != "" {
		return createWith(runtimes, q, descriptors, check)
	}
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: q.ID, Spec: q.Spec})
	if err != nil {
		return helper.Answer{}, fmt.Errorf("convert spec: %w", err)
	}
	container, err := libcontainer.Create(q.StateDir, q.ID, config)
	if err != nil {
		return helper.Answer{}, fmt.Errorf("create: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return helper.Answer{}, err
	}
	process := &libcontainer.Process{
		Init:            true,
		Args:            p.Args,
		Env:             p.Env,
		Cwd:             p.Cwd,
		UID:             int(p.User.UID),
		GID:             int(p.User.GID),
		NoNewPrivileges: &p.NoNewPrivileges,
		Stdin:           null,
		Stdout:          null,
		Stderr:          null,
		ExtraFiles:      descriptors,
	}
	if err := container.Run(process); err != nil {
		return helper.Answer{}, fmt.Errorf("run: %w", err)
	}
	state, err := container.State()
	if err != nil {
		return helper.Answer{}, fmt.Errorf("state: %w", err)
	}
	groups, err := check(state.InitProcessPid)
	if err != nil {
		return helper.Answer{}, err
	}
	return helper.Answer{PID: state.InitProcessPid, Start: state.InitProcessStartTime, Groups: groups}, nil
}

// divide makes the groups of the sandbox's commands, and returns what its first
// process is told of them and gets. They are reached through descriptors alone:
// no cgroup is mounted inside.
func divide(q *helper.Request, trees cgroup.Hierarchies) (args []string, dirs []*os.File, err error) {
	if q.Commands == nil {
		return nil, nil, nil
	}
	parts, err := trees.Divide(q.Cgroup, int(q.Spec.Linux.UIDMappings[0].HostID), *q.Commands)
	if err != nil {
		return nil, nil, finalError{fmt.Errorf("the commands' groups: %w", err)}
	}
	var names []string
	for _, p := range parts {
		names, dirs = append(names, p.Controller), append(dirs, p.Dir)
	}
	return []string{"--groups", strings.Join(names, ",")}, dirs, nil
}

// mountRoot makes the root reachable at rootMount and puts that into the spec.
func mountRoot(spec *specs.Spec, mapped bool) error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	parents, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	if err != nil {
		return err
	}
	if own == parents {
		return errors.New("create must be started in a mount namespace of its own")
	}
	if err := os.MkdirAll(rootMount, 0o755); err != nil {
		return err
	}
	// The sandbox's root, who isn't the machine's, goes through it; the server may
	// have made it under its umask.
	if err := os.Chmod(filepath.Dir(rootMount), 0o755); err != nil {
		return err
	}
	if mapped {
		if err := mountMapped(spec); err != nil {
			return err
		}
	} else if err := unix.Mount(spec.Root.Path, rootMount, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", spec.Root.Path, err)
	}
	spec.Root.Path = rootMount
	return nil
}

// A finalError won't be another the next time. That what is to keep programs
// apart didn't take is one: nobody is to try until it is slipped through.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }
