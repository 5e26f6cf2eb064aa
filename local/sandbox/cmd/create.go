package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// rootMount is where the root directory is mounted, in the helper's mount namespace only. The
// sandbox's root user must be able to reach it, and often can't reach the server's data directory.
const rootMount = "/run/rockpool/root"

// create makes the sandbox, reads its limits back, and starts its first process. After an error
// something may be left for remove.
func create(c helper.Config, q *helper.Request, trees cgroup.Hierarchies) (helper.Answer, error) {
	l, err := begin(c, q, trees)
	if err != nil {
		return helper.Answer{}, err
	}
	var answer helper.Answer
	if q.Runtime == oci.GVisor {
		answer, err = createGVisor(c, q, trees, l)
	} else {
		answer, err = createNamespaces(c, q, trees, l)
	}
	if err != nil {
		return helper.Answer{}, err
	}
	return answer, l.setAddress(q, &answer)
}

// begin checks the requested network, and makes the parent of the sandbox's cgroups.
func begin(c helper.Config, q *helper.Request, trees cgroup.Hierarchies) (*link, error) {
	l, err := linkOf(c, q)
	if err != nil {
		return nil, err
	}
	if err := trees.Prepare(path.Dir(c.Group(q.ID))); err != nil {
		return nil, finalError{err}
	}
	return l, nil
}

// checkNamespaces returns an error if a process shares a namespace with this one.
func checkNamespaces(pid int) error {
	for _, kind := range []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"} {
		own, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return err
		}
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			return err
		}
		if its == own {
			return fmt.Errorf("the runtime made no %s namespace for it", kind)
		}
	}
	return nil
}

// A draft is a sandbox in the making that uses the machine's kernel.
type draft struct {
	config helper.Config
	q      *helper.Request
	trees  cgroup.Hierarchies
	link   *link
	spec   *specs.Spec
	limits cgroup.Limits
	groups cgroup.Groups // read back by check
}

// newDraft returns a draft of the requested sandbox. resolver is the file to mount as its
// /etc/resolv.conf.
func newDraft(c helper.Config, q *helper.Request, trees cgroup.Hierarchies, l *link, resolver string) (*draft, error) {
	c.Machine.Undivided, c.Machine.Launchers, c.Machine.SeparateCPU = trees.Divisible(), trees.Launchers(), trees.SeparateCPU()
	c.Machine.Lacks = trees.Lacks()
	if len(c.Machine.Lacks) > 0 && !c.AcceptMissing {
		return nil, finalError{fmt.Errorf("limits of %s can't be set here", strings.Join(c.Machine.Lacks, ", "))}
	}
	of := spec.Sandbox{Group: c.KernelGroup(q.ID), Slot: q.Slot, Users: c.Users(q), Resources: *q.Resources, Root: rootOf(c, q), Zygote: q.Zygote, Resolver: resolver}
	s := spec.New(of, c.Machine)
	s.Process.Rlimits = attainable(s.Process.Rlimits)
	limits, err := spec.Limits(s, c.Machine.Lacks)
	if err != nil {
		return nil, finalError{err}
	}
	return &draft{config: c, q: q, trees: trees, link: l, spec: s, limits: limits}, nil
}

func (d *draft) makeView() error {
	if err := spec.ViewOf(*d.q.Resources, d.config.Machine).Make(d.trees); err != nil {
		return fmt.Errorf("make what programs see of the machine: %w", err)
	}
	return nil
}

// divide makes the cgroups of the sandbox's commands, if that is possible. It returns the agent's
// descriptors: the listener, then the cgroups' directories. These cgroups can be changed only through
// the descriptors: inside, cgroups are mounted read-only.
func (d *draft) divide(listener *os.File) (files []*os.File, err error) {
	files = []*os.File{listener}
	c, q := d.config, d.q
	if c.Machine.Undivided != nil {
		return files, nil
	}
	parts, err := d.trees.Divide(c.Group(q.ID), owner(d.spec), spec.Commands(*q.Resources, c.Machine))
	if err != nil {
		return nil, finalError{fmt.Errorf("set up the commands' cgroups: %w", err)}
	}
	var names []string
	for _, p := range parts {
		names, files = append(names, p.Controller), append(files, p.Dir)
	}
	d.spec.Process.Args = append(d.spec.Process.Args, "--groups", strings.Join(names, ","))
	return files, nil
}

// check limits the first process while it waits, and reads its limits back.
func (d *draft) check(pid int) (err error) {
	c, q := d.config, d.q
	if c.Machine.Undivided == nil {
		if err := d.trees.Settle(c.Group(q.ID), owner(d.spec), spec.Commands(*q.Resources, c.Machine)); err != nil {
			return finalError{fmt.Errorf("set up the commands' cgroups: %w", err)}
		}
	}
	if d.groups, err = d.trees.Check(pid, c.Group(q.ID), d.limits); err != nil {
		return finalError{fmt.Errorf("check the limits: %w", err)}
	}
	if err := boundGroups(c, q, d.trees); err != nil {
		return finalError{fmt.Errorf("limit shared resources: %w", err)}
	}
	return d.link.make(c, q, pid)
}

// createNamespaces makes a sandbox that uses the machine's kernel, with libcontainer or an OCI
// runtime.
func createNamespaces(c helper.Config, q *helper.Request, trees cgroup.Hierarchies, l *link) (helper.Answer, error) {
	if err := helper.CheckListener(3); err != nil {
		return helper.Answer{}, err
	}
	listener := os.NewFile(3, "listener")
	d, err := newDraft(c, q, trees, l, l.resolver())
	if err != nil {
		return helper.Answer{}, err
	}
	s := d.spec
	// In version 1 a runtime would mount all trees, also those in which the sandbox has no cgroup.
	if s.Linux.CgroupsPath != "" && trees.Unified() {
		spec.ShowGroups(s, spec.ByRuntime)
	}
	if err := mountRoot(c, q, s); err != nil {
		return helper.Answer{}, err
	}
	if err := d.makeView(); err != nil {
		return helper.Answer{}, err
	}
	if err := l.mountResolver(c); err != nil {
		return helper.Answer{}, err
	}
	descriptors, err := d.divide(listener)
	if err != nil {
		return helper.Answer{}, err
	}
	check := func(pid int) (cgroup.Groups, error) {
		if q.Runtime != "" { // a runtime may ignore parts of a spec
			if err := checkNamespaces(pid); err != nil {
				return cgroup.Groups{}, finalError{err}
			}
		}
		if err := boundUsers(pid); err != nil {
			return cgroup.Groups{}, finalError{fmt.Errorf("limit shared resources: %w", err)}
		}
		err := d.check(pid)
		return d.groups, err
	}
	if q.Runtime != "" {
		return createWith(d.config, q, s, descriptors, check)
	}
	p := s.Process
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: q.ID, Spec: s, RootlessCgroups: c.Rootless != nil})
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
	limited, err := rlimits(p.Rlimits)
	if err != nil {
		return helper.Answer{}, finalError{err}
	}
	process := &libcontainer.Process{
		Init:            true,
		Args:            p.Args,
		Env:             p.Env,
		Cwd:             p.Cwd,
		UID:             int(p.User.UID),
		GID:             int(p.User.GID),
		NoNewPrivileges: &p.NoNewPrivileges,
		Rlimits:         limited,
		Stdin:           null,
		Stdout:          null,
		Stderr:          null,
		ExtraFiles:      descriptors,
	}
	if err := container.Start(process); err != nil {
		return helper.Answer{}, fmt.Errorf("start: %w", err)
	}
	state, err := container.State()
	if err != nil {
		return helper.Answer{}, fmt.Errorf("state: %w", err)
	}
	groups, err := check(state.InitProcessPid)
	if err != nil {
		_ = container.Signal(unix.SIGKILL) // it may be outside the sandbox's cgroups, where remove doesn't look
		return helper.Answer{}, err
	}
	// Start left the first process waiting. It runs the agent only now, after the check.
	if err := container.Exec(); err != nil {
		return helper.Answer{}, fmt.Errorf("run: %w", err)
	}
	return helper.Answer{PID: state.InitProcessPid, Start: state.InitProcessStartTime, Groups: groups}, nil
}

// owner returns the machine's uid of the sandbox's root user.
func owner(s *specs.Spec) int { return int(s.Linux.UIDMappings[0].HostID) }

// rootOf returns the sandbox's root directory, as it is mounted at rootMount.
func rootOf(c helper.Config, q *helper.Request) spec.Root {
	if q.Image == "" {
		return spec.Root{Path: rootMount}
	}
	return spec.Root{Path: rootMount, Image: true, Agent: filepath.Join(c.Root, spec.AgentPath)}
}

// A finalError is one that the same request would cause again. A failure to apply an isolation or a
// limit is final, so that a request can't be retried until a race lets it through.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }
