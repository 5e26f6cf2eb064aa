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
	"strings"

	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// outsideMount is where the directory of an agent's socket is mounted, likewise.
const outsideMount = "/run/rockpool/outside"

// stateMount is where the sandbox's own directory is: what a runtime makes there
// are sockets too, whose paths must be short.
const stateMount = "/run/rockpool/state"

// createGVisor makes a sandbox with a kernel of its own. Descriptor 3 is the
// directory of its agent's socket.
func createGVisor(c helper.Config, q *helper.Request, trees cgroup.Hierarchies) (helper.Answer, error) {
	runtime.LockOSThread() // whose end would be the runtime's
	defer runtime.UnlockOSThread()
	program, err := c.Runtimes.Find(oci.GVisor)
	if err != nil {
		return helper.Answer{}, finalError{err}
	}
	if c.Rootless != nil {
		return helper.Answer{}, finalError{errors.New("only root has sandboxes of gVisor's in this version")}
	}
	if lacks := trees.Lacks(); len(lacks) > 0 {
		return helper.Answer{}, finalError{fmt.Errorf("no limits of %s can be set here", strings.Join(lacks, ", "))}
	}
	s := spec.New(spec.Sandbox{Group: c.Group(q.ID), Slot: q.Slot, Resources: *q.Resources, Root: rootOf(c, q), GVisor: true}, c.Machine)
	limits, err := spec.Limits(s, nil)
	if err != nil {
		return helper.Answer{}, finalError{err}
	}
	if err := mountRoot(c, q, s); err != nil {
		return helper.Answer{}, err
	}
	if err := mountState(c, q); err != nil {
		return helper.Answer{}, err
	}
	if err := mountOutside(s); err != nil {
		return helper.Answer{}, fmt.Errorf("the directory of the agent's socket: %w", err)
	}
	box := oci.Box{ID: q.ID, Dir: stateMount, Spec: s}
	pid, err := program.RunGVisor(context.Background(), box, func(pid int) error { // before anything runs
		if err := limit(pid, q, s); err != nil {
			return finalError{fmt.Errorf("the limits didn't take: %w", err)}
		}
		if _, err := trees.Check(pid, c.Group(q.ID), limits); err != nil {
			return finalError{fmt.Errorf("the limits didn't take: %w", err)}
		}
		return nil
	})
	if err != nil {
		return helper.Answer{}, told(oci.GVisor, err)
	}
	// The socket is there, and nothing of a user's has run. From now on the
	// directory is closed to the sandbox's root: it is on the machine's disk, and who
	// could make a socket in it could stand in for the agent.
	if err := errors.Join(os.Chown(outsideMount, 0, -1), os.Chmod(outsideMount, 0o711)); err != nil {
		return helper.Answer{}, finalError{fmt.Errorf("close the directory of the agent's socket: %w", err)}
	}
	groups, err := trees.Check(pid, c.Group(q.ID), limits)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // wherever it is: remove looks in the sandbox's groups
		return helper.Answer{}, finalError{fmt.Errorf("the limits didn't take: %w", err)}
	}
	spare(pid, groups.Processes.Dir)
	return answered(pid, groups)
}

// spare has the kernel of the machine, when memory is full, choose the processes
// that stand for those inside, not the kernel there: what it is told of them dies
// alone then. It is no more than a preference.
func spare(pid int, group string) {
	pids, err := cgroup.Processes(group)
	if err != nil {
		return
	}
	below := map[int]bool{pid: true} // gofers aren't
	slices.Sort(pids)
	for _, other := range pids {
		if parent, err := field(other, 1); err != nil || !below[int(parent)] {
			continue
		}
		below[other] = true
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", other), []byte("900"), 0)
	}
}

// field returns a number of a process's stat file, counted from the one after its
// name.
func field(pid, which int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name is in parentheses, and can hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= which {
		return 0, fmt.Errorf("process %d: unknown format of its stat file", pid)
	}
	return strconv.ParseUint(string(fields[which]), 10, 64)
}

// limit puts a process into the sandbox's groups, and sets their limits.
func limit(pid int, q *helper.Request, s *specs.Spec) error {
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: q.ID, Spec: s})
	if err != nil {
		return err
	}
	m, err := manager.New(config.Cgroups)
	if err != nil {
		return err
	}
	if err := m.Apply(pid); err != nil {
		return err
	}
	return m.Set(config.Cgroups.Resources)
}

// mountState makes the sandbox's own directory.
func mountState(c helper.Config, q *helper.Request) error {
	at := filepath.Join(c.State, q.ID)
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
func mountOutside(s *specs.Spec) error {
	i := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == spec.AgentPath })
	if i < 0 {
		return errors.New("the spec doesn't say where the agent is")
	}
	program := s.Mounts[i].Source
	var stat unix.Stat_t
	if err := unix.Fstat(3, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New("descriptor 3 isn't a directory")
	}
	if entries, err := os.ReadDir("/proc/self/fd/3"); err != nil || len(entries) > 0 {
		return errors.New("descriptor 3 isn't an empty directory")
	}
	dir, err := os.Readlink("/proc/self/fd/3")
	if err != nil {
		return err
	}
	root := int(s.Linux.UIDMappings[0].HostID)
	if err := os.MkdirAll(outsideMount, 0o700); err != nil {
		return err
	}
	// The descriptor is of another mount namespace: it can't be mounted itself.
	if err := unix.Mount(dir, outsideMount, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	var mounted unix.Stat_t
	if err := unix.Stat(outsideMount, &mounted); err != nil || mounted.Dev != stat.Dev || mounted.Ino != stat.Ino {
		return errors.New("descriptor 3 isn't where its name says")
	}
	if err := errors.Join(os.Chown(outsideMount, root, -1), os.Chmod(outsideMount, 0o710)); err != nil {
		return err
	}
	at := filepath.Join(outsideMount, path.Base(spec.AgentPath))
	if err := os.WriteFile(at, nil, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(program, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return err
	}
	s.Mounts[i] = specs.Mount{Destination: path.Dir(spec.AgentPath), Type: "bind", Source: outsideMount, Options: []string{"rbind", "rw", "nosuid", "nodev"}}
	return nil
}

// createWith makes a sandbox with a runtime that knows runc's command line. It is
// as libcontainer would make it.
func createWith(c helper.Config, q *helper.Request, s *specs.Spec, files []*os.File, check func(pid int) (cgroup.Groups, error)) (helper.Answer, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	program, err := c.Runtimes.Find(q.Runtime)
	if err != nil {
		return helper.Answer{}, finalError{err}
	}
	if c.Rootless != nil {
		return helper.Answer{}, finalError{fmt.Errorf("only root has sandboxes of the runtime %s in this version", q.Runtime)}
	}
	if err := mountState(c, q); err != nil {
		return helper.Answer{}, err
	}
	if program.NoTime {
		s.Linux.TimeOffsets = nil
		s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.TimeNamespace })
	}
	box := oci.Box{ID: q.ID, Dir: stateMount, Spec: s, Files: files}
	var groups cgroup.Groups
	pid, err := program.Run(context.Background(), q.Runtime, box, func(pid int) error { // before the agent runs
		if groups, err = check(pid); err != nil {
			_ = unix.Kill(pid, unix.SIGKILL) // wherever it is: remove looks in the sandbox's groups
		}
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
	start, err := field(pid, 19)
	return helper.Answer{PID: pid, Start: start, Groups: groups}, err
}
