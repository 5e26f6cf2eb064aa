package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
)

// outsideMount is where the directory of an agent's socket is mounted, likewise.
const outsideMount = "/run/rockpool/outside"

// stateMount is where the sandbox's own directory is: what a runtime makes there
// are sockets too, whose paths must be short.
const stateMount = "/run/rockpool/state"

// createGVisor makes a sandbox with a kernel of its own. Descriptor 3 is the
// directory of its agent's socket.
func createGVisor(runtimes oci.Runtimes, q *helper.Request, trees cgroup.Hierarchies, limits cgroup.Limits) (helper.Answer, error) {
	runtime.LockOSThread() // whose end would be the runtime's
	defer runtime.UnlockOSThread()
	program, err := runtimes.Find(oci.GVisor)
	if err != nil {
		return helper.Answer{}, finalError{err}
	}
	if err := mountState(q); err != nil {
		return helper.Answer{}, err
	}
	if err := mountOutside(q.Spec); err != nil {
		return helper.Answer{}, fmt.Errorf("the directory of the agent's socket: %w", err)
	}
	box := oci.Box{ID: q.ID, Dir: stateMount, Spec: q.Spec}
	var groups cgroup.Groups
	pid, err := program.RunGVisor(context.Background(), box, func(pid int) error { // before anything runs
		groups, err = confine(pid, q, trees, limits)
		return err
	})
	if err != nil {
		return helper.Answer{}, told(oci.GVisor, err)
	}
	if _, err := trees.Check(pid, q.Cgroup, limits); err != nil {
		return helper.Answer{}, finalError{fmt.Errorf("the limits didn't take: %w", err)}
	}
	return answered(pid, groups)
}

// confine puts a process into the sandbox's groups, sets their limits, and reads
// them back.
func confine(pid int, q *helper.Request, trees cgroup.Hierarchies, limits cgroup.Limits) (cgroup.Groups, error) {
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: q.ID, Spec: q.Spec})
	if err != nil {
		return cgroup.Groups{}, fmt.Errorf("convert spec: %w", err)
	}
	m, err := manager.New(config.Cgroups)
	if err != nil {
		return cgroup.Groups{}, err
	}
	if err := m.Apply(pid); err != nil {
		return cgroup.Groups{}, fmt.Errorf("join the groups: %w", err)
	}
	if err := m.Set(config.Cgroups.Resources); err != nil {
		return cgroup.Groups{}, finalError{fmt.Errorf("the limits didn't take: %w", err)}
	}
	groups, err := trees.Check(pid, q.Cgroup, limits)
	if err != nil {
		return cgroup.Groups{}, finalError{fmt.Errorf("the limits didn't take: %w", err)}
	}
	return groups, nil
}

// mountState makes the sandbox's own directory.
func mountState(q *helper.Request) error {
	at := filepath.Join(q.StateDir, q.ID)
	for _, dir := range []string{at, stateMount} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return unix.Mount(at, stateMount, "", unix.MS_BIND, "")
}

// mountOutside gives the directory of the agent's socket to the sandbox's root,
// puts the agent into it, and both into the spec in the place of the agent's own
// mount: one directory for both is what every root has. The server may come
// here through its group, others can't.
func mountOutside(spec *specs.Spec) error {
	i := slices.IndexFunc(spec.Mounts, func(m specs.Mount) bool { return m.Destination == helper.AgentPath })
	if i < 0 {
		return errors.New("the spec doesn't say where the agent is")
	}
	program := spec.Mounts[i].Source
	var stat unix.Stat_t
	if err := unix.Fstat(3, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New("descriptor 3 isn't a directory")
	}
	if entries, err := os.ReadDir("/proc/self/fd/3"); err != nil || len(entries) > 0 {
		return errors.New("descriptor 3 isn't an empty directory")
	}
	root := int(spec.Linux.UIDMappings[0].HostID)
	if err := os.MkdirAll(outsideMount, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("/proc/self/fd/3", outsideMount, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := errors.Join(os.Chown(outsideMount, root, -1), os.Chmod(outsideMount, 0o710)); err != nil {
		return err
	}
	at := filepath.Join(outsideMount, path.Base(helper.AgentPath))
	if err := os.WriteFile(at, nil, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(program, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return err
	}
	spec.Mounts[i] = specs.Mount{Destination: path.Dir(helper.AgentPath), Type: "bind", Source: outsideMount, Options: []string{"rbind", "rw", "nosuid", "nodev"}}
	return nil
}

// createWith makes a sandbox with a runtime that knows runc's command line. It is
// as libcontainer would make it.
func createWith(runtimes oci.Runtimes, q *helper.Request, files []*os.File, check func(pid int) (cgroup.Groups, error)) (helper.Answer, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	program, err := runtimes.Find(q.Runtime)
	if err != nil {
		return helper.Answer{}, finalError{err}
	}
	if err := mountState(q); err != nil {
		return helper.Answer{}, err
	}
	box := oci.Box{ID: q.ID, Dir: stateMount, Spec: q.Spec, Files: files}
	var groups cgroup.Groups
	pid, err := program.Run(context.Background(), q.Runtime, box, func(pid int) error { // before the agent runs
		groups, err = check(pid)
		return err
	})
	if err != nil {
		return helper.Answer{}, told(q.Runtime, err)
	}
	return answered(pid, groups)
}

// told names the runtime that failed.
func told(name string, err error) error {
	var refusal *oci.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	return fmt.Errorf("the runtime %s refused: %w", name, err)
}

func answered(pid int, groups cgroup.Groups) (helper.Answer, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return helper.Answer{}, err
	}
	// The second field is a name in parentheses, which can hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return helper.Answer{}, fmt.Errorf("process %d: unknown format of its stat file", pid)
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	return helper.Answer{PID: pid, Start: start, Groups: groups}, err
}
