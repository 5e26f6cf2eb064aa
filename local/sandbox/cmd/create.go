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

// rootMount is where the root directory is mounted, in the helper's own mount
// namespace only. The sandbox's root user must be able to come here, which it
// often can't in the server's data directory.
const rootMount = "/run/rockpool/root"

// create makes the sandbox, starts its first process, and reads back that the
// limits hold. After an error something may be left, for remove.
func create(c helper.Config, q *helper.Request, trees cgroup.Hierarchies) (helper.Answer, error) {
	l, err := linkOf(c, q)
	if err != nil {
		return helper.Answer{}, err
	}
	if err := trees.Prepare(path.Dir(c.Group(q.ID))); err != nil {
		return helper.Answer{}, finalError{err}
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
	return answer, l.tell(q, &answer)
}

// apart returns an error where a process shares a namespace with this one.
func apart(pid int) error {
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
			return fmt.Errorf("the runtime gave it no %s namespace of its own", kind)
		}
	}
	return nil
}

// A draft is a sandbox that is being made, whose kernel is the machine's.
type draft struct {
	config helper.Config
	q      *helper.Request
	trees  cgroup.Hierarchies
	link   *link
	spec   *specs.Spec
	limits cgroup.Limits
	groups cgroup.Groups // read back by check
}

// newDraft returns what a request asks for. resolver is the file of a name server.
func newDraft(c helper.Config, q *helper.Request, trees cgroup.Hierarchies, l *link, resolver string) (*draft, error) {
	c.Machine.Undivided, c.Machine.Launchers, c.Machine.ApartCPU = trees.Divisible(), trees.Launchers(), trees.ApartCPU()
	c.Machine.Lacks = trees.Lacks()
	if len(c.Machine.Lacks) > 0 && !c.AcceptMissing {
		return nil, finalError{fmt.Errorf("no limits of %s can be set here", strings.Join(c.Machine.Lacks, ", "))}
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

// divide makes the groups of commands, and has the agent get them after the listener.
func (d *draft) divide(listener *os.File) (files []*os.File, err error) {
	args, dirs, err := divide(d.config, d.q, d.spec, d.trees)
	if err != nil {
		return nil, err
	}
	d.spec.Process.Args = append(d.spec.Process.Args, args...)
	return append([]*os.File{listener}, dirs...), nil
}

// check judges the first process while it waits to be let go on, and reads its limits back.
func (d *draft) check(pid int) (err error) {
	c, q := d.config, d.q
	if c.Machine.Undivided == nil {
		if err := d.trees.Settle(c.Group(q.ID), owner(d.spec), spec.Commands(*q.Resources, c.Machine)); err != nil {
			return finalError{fmt.Errorf("the commands' groups: %w", err)}
		}
	}
	if d.groups, err = d.trees.Check(pid, c.Group(q.ID), d.limits); err != nil {
		return finalError{fmt.Errorf("the limits didn't take: %w", err)}
	}
	if err := boundGroups(c, q, d.trees); err != nil {
		return finalError{fmt.Errorf("the limits of what all share: %w", err)}
	}
	return d.link.make(c, q, pid)
}

// createNamespaces makes one whose kernel is the machine's, with libcontainer or another
// program that applies a spec.
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
	if err := mountRoot(c, q, s); err != nil {
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
		if q.Runtime != "" { // of which nobody knows what it does with a spec
			if err := apart(pid); err != nil {
				return cgroup.Groups{}, finalError{err}
			}
		}
		if err := boundUsers(pid); err != nil {
			return cgroup.Groups{}, finalError{fmt.Errorf("the limits of what all share: %w", err)}
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
		_ = container.Signal(unix.SIGKILL) // wherever it is: remove looks in the sandbox's groups
		return helper.Answer{}, err
	}
	if err := container.Exec(); err != nil {
		return helper.Answer{}, fmt.Errorf("run: %w", err)
	}
	return helper.Answer{PID: state.InitProcessPid, Start: state.InitProcessStartTime, Groups: groups}, nil
}

// owner is the sandbox's root, as the machine counts.
func owner(s *specs.Spec) int { return int(s.Linux.UIDMappings[0].HostID) }

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
	parts, err := trees.Divide(c.Group(q.ID), owner(s), spec.Commands(*q.Resources, c.Machine))
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
