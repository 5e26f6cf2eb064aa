package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// stateMount is where the sandbox's state directory is mounted: runtimes make sockets there, whose
// paths must be short.
const stateMount = "/run/rockpool/state"

// createGVisor makes a sandbox with its own kernel. Descriptor 3 is the directory of its agent's
// socket.
func createGVisor(c helper.Config, q *helper.Request, trees cgroup.Hierarchies, l *link) (helper.Answer, error) {
	runtime.LockOSThread() // the runtime's process ends with this thread
	defer runtime.UnlockOSThread()
	program, err := findRuntime(c, oci.GVisor)
	if err != nil {
		return helper.Answer{}, err
	}
	if lacks := trees.Lacks(); len(lacks) > 0 {
		return helper.Answer{}, finalError{fmt.Errorf("limits of %s can't be set here", strings.Join(lacks, ", "))}
	}
	s := spec.New(spec.Sandbox{Group: c.Group(q.ID), Slot: q.Slot, Resources: *q.Resources, Root: rootOf(c, q), GVisor: true, Resolver: l.resolver()}, c.Machine)
	limits, err := spec.Limits(s, nil)
	if err != nil {
		return helper.Answer{}, finalError{err}
	}
	if err := mountRoot(c, q, s); err != nil {
		return helper.Answer{}, err
	}
	if err := l.mountResolver(c); err != nil {
		return helper.Answer{}, err
	}
	if err := mountState(c, q); err != nil {
		return helper.Answer{}, err
	}
	// gVisor shows its programs the memory that it finds here.
	if err := spec.ViewOf(*q.Resources, c.Machine).MountMemory(trees); err != nil {
		return helper.Answer{}, fmt.Errorf("show gVisor the runner's memory: %w", err)
	}
	client, err := mountOutside(c, q, s)
	if err != nil {
		return helper.Answer{}, fmt.Errorf("prepare the directory of the agent's socket: %w", err)
	}
	box := oci.Box{ID: q.ID, Dir: stateMount, Spec: s, Linked: l != nil}
	// The CPU limit comes last: starting gVisor takes the same CPU time however small the runner
	// is, and no program of a user runs yet. Its platform has already opened the devices that it
	// needs.
	speed, devices, withoutCPU := *s.Linux.Resources.CPU, s.Linux.Resources.Devices, limits
	s.Linux.Resources.CPU.Quota, s.Linux.Resources.CPU.Period, withoutCPU.CPUQuota = nil, nil, 0
	if program.UsesKVM() {
		// This device is /dev/kvm.
		major, minor := int64(10), int64(232)
		s.Linux.Resources.Devices = append(slices.Clone(devices), specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major, Minor: &minor, Access: "rw"})
	}
	pid, err := program.RunGVisor(context.Background(), box, func(pid int) error { // before anything runs
		if _, err := limit(pid, q, s); err != nil {
			return finalError{fmt.Errorf("set the limits: %w", err)}
		}
		if _, err := trees.Check(pid, c.Group(q.ID), withoutCPU); err != nil {
			return finalError{fmt.Errorf("check the limits: %w", err)}
		}
		if err := boundGroups(c, q, trees); err != nil {
			return finalError{fmt.Errorf("limit shared resources: %w", err)}
		}
		return l.make(c, q, pid)
	})
	if err != nil {
		return helper.Answer{}, ofRuntime(oci.GVisor, err)
	}
	s.Linux.Resources.CPU, s.Linux.Resources.Devices = &speed, devices
	_, err = limit(joined, q, s)
	var groups cgroup.Groups
	if err == nil {
		groups, err = trees.Check(pid, c.Group(q.ID), limits)
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // it may be outside the sandbox's cgroups, where remove doesn't look
		return helper.Answer{}, finalError{fmt.Errorf("set or check the limits: %w", err)}
	}
	if err := closeOutside(client, owner(s)); err != nil { // from now on programs can be started
		_ = unix.Kill(pid, unix.SIGKILL)
		return helper.Answer{}, finalError{fmt.Errorf("close the directory of the agent's socket: %w", err)}
	}
	preferPrograms(pid, groups.Processes.Dir)
	return answered(pid, groups)
}

// preferPrograms makes the machine's kernel, when memory is full, prefer to kill the processes that
// stand for those inside, instead of gVisor's kernel: then only those end. It is only a preference.
func preferPrograms(pid int, group string) {
	pids, err := cgroup.Processes(group)
	if err != nil {
		return
	}
	below := map[int]bool{pid: true} // gofer processes aren't its descendants
	slices.Sort(pids)
	for _, other := range pids {
		if parent, err := helper.Parent(other); err != nil || !below[int(parent)] {
			continue
		}
		below[other] = true
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", other), []byte("900"), 0)
	}
}

// joined stands for a process that is in the sandbox's cgroups already.
const joined = 0

// limit moves a process into the sandbox's cgroups, makes those that are missing, and sets their limits.
func limit(pid int, q *helper.Request, s *specs.Spec) (cgroups.Manager, error) {
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: q.ID, Spec: s})
	if err != nil {
		return nil, fmt.Errorf("convert spec: %w", err)
	}
	m, err := manager.New(config.Cgroups)
	if err != nil {
		return nil, fmt.Errorf("prepare cgroups: %w", err)
	}
	if pid != joined {
		if err := m.Apply(pid); err != nil {
			return nil, fmt.Errorf("make cgroups: %w", err)
		}
	}
	if err := m.Set(config.Cgroups.Resources); err != nil {
		return nil, fmt.Errorf("set limits: %w", err)
	}
	return m, nil
}

func mountState(c helper.Config, q *helper.Request) error {
	at := filepath.Join(c.State, q.ID)
	for _, dir := range []string{at, stateMount} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return unix.Mount(at, stateMount, "", unix.MS_BIND, "")
}

// createWith makes a sandbox with an OCI runtime, with the same properties as with libcontainer.
func createWith(c helper.Config, q *helper.Request, s *specs.Spec, files []*os.File, check func(pid int) (cgroup.Groups, error)) (helper.Answer, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	program, err := findRuntime(c, q.Runtime)
	if err != nil {
		return helper.Answer{}, err
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
			_ = unix.Kill(pid, unix.SIGKILL) // it may be outside the sandbox's cgroups, where remove doesn't look
		}
		return err
	})
	if err != nil {
		return helper.Answer{}, ofRuntime(q.Runtime, err)
	}
	return answered(pid, groups)
}

func findRuntime(c helper.Config, name string) (oci.Runtime, error) {
	program, err := c.Runtimes.Find(name)
	if err == nil && c.Rootless != nil {
		err = fmt.Errorf("sandboxes of the runtime %s need root: run a sandbox helper as root", name)
	}
	if err != nil {
		return oci.Runtime{}, finalError{err}
	}
	return program, nil
}

func ofRuntime(name string, err error) error {
	if _, refused := errors.AsType[*oci.Refusal](err); !refused {
		return err
	}
	return fmt.Errorf("the runtime %s refused: %w", name, err)
}

func answered(pid int, groups cgroup.Groups) (helper.Answer, error) {
	start, err := helper.StartTime(pid)
	return helper.Answer{PID: pid, Start: start, Groups: groups}, err
}
