package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
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

// stateMount is where the sandbox's own directory is: what a runtime makes there
// are sockets too, whose paths must be short.
const stateMount = "/run/rockpool/state"

// createGVisor makes a sandbox with a kernel of its own. Descriptor 3 is the
// directory of its agent's socket.
func createGVisor(c helper.Config, q *helper.Request, trees cgroup.Hierarchies, l *link) (helper.Answer, error) {
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
	asker, err := mountOutside(c, q, s)
	if err != nil {
		return helper.Answer{}, fmt.Errorf("the directory of the agent's socket: %w", err)
	}
	box := oci.Box{ID: q.ID, Dir: stateMount, Spec: s, Linked: l != nil}
	// How fast it may be comes last: what starts has no program of a user's, and
	// takes as much of the machine however small the runner is. What its platform
	// needs is opened by then.
	speed, devices, unhurried := *s.Linux.Resources.CPU, s.Linux.Resources.Devices, limits
	s.Linux.Resources.CPU.Quota, s.Linux.Resources.CPU.Period, unhurried.CPUQuota = nil, nil, 0
	if program.UsesKVM() {
		major, minor := int64(10), int64(232)
		s.Linux.Resources.Devices = append(slices.Clone(devices), specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major, Minor: &minor, Access: "rw"})
	}
	pid, err := program.RunGVisor(context.Background(), box, func(pid int) error { // before anything runs
		if err := limit(pid, q, s); err != nil {
			return finalError{fmt.Errorf("the limits didn't take: %w", err)}
		}
		if _, err := trees.Check(pid, c.Group(q.ID), unhurried); err != nil {
			return finalError{fmt.Errorf("the limits didn't take: %w", err)}
		}
		if err := boundGroups(c, q, trees); err != nil {
			return finalError{fmt.Errorf("the limits of what all share: %w", err)}
		}
		return l.make(c, q, pid)
	})
	if err != nil {
		return helper.Answer{}, told(oci.GVisor, err)
	}
	s.Linux.Resources.CPU, s.Linux.Resources.Devices = &speed, devices
	err = limit(joined, q, s)
	var groups cgroup.Groups
	if err == nil {
		groups, err = trees.Check(pid, c.Group(q.ID), limits)
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // wherever it is: remove looks in the sandbox's groups
		return helper.Answer{}, finalError{fmt.Errorf("the limits didn't take: %w", err)}
	}
	if err := closeOutside(asker, owner(s)); err != nil { // from now on programs can be started
		_ = unix.Kill(pid, unix.SIGKILL)
		return helper.Answer{}, finalError{fmt.Errorf("close the directory of the agent's socket: %w", err)}
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

// joined stands for a process that is in the sandbox's groups already.
const joined = 0

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
	if pid != joined {
		if err := m.Apply(pid); err != nil {
			return err
		}
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
