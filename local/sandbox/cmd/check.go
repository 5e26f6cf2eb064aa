package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
)

// firstUID is the lowest user id of this machine that a sandbox may have.
const firstUID = 1_000_000_000

var namespaces = []specs.LinuxNamespaceType{
	specs.UserNamespace, specs.PIDNamespace, specs.MountNamespace, specs.IPCNamespace,
	specs.UTSNamespace, specs.CgroupNamespace, specs.NetworkNamespace,
}

// What the agent needs to start commands as another user, to end them, and to
// write files into the workspace.
var capabilities = []string{
	"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER",
}

// checkSpec refuses what the server never asks for, so that whoever could
// speak in its place gains little: no hooks, own namespaces, users that aren't
// this machine's, nothing of the machine writable, few capabilities, limits.
func checkSpec(q *helper.Request) (cgroup.Limits, error) {
	s := q.Spec
	if s == nil || s.Process == nil || s.Linux == nil || s.Root == nil {
		return cgroup.Limits{}, errors.New("the spec needs process, root and linux")
	}
	if s.Hooks != nil || s.Linux.Seccomp != nil || s.Process.Terminal {
		return cgroup.Limits{}, errors.New("the spec has hooks, seccomp or a terminal")
	}
	if !filepath.IsAbs(s.Root.Path) || !s.Root.Readonly {
		return cgroup.Limits{}, errors.New("the root must be an absolute path, read-only")
	}
	if s.Linux.CgroupsPath != q.Cgroup {
		return cgroup.Limits{}, fmt.Errorf("the spec's group %q isn't the request's %q", s.Linux.CgroupsPath, q.Cgroup)
	}
	for _, wanted := range namespaces {
		if !slices.Contains(s.Linux.Namespaces, specs.LinuxNamespace{Type: wanted}) {
			return cgroup.Limits{}, fmt.Errorf("the spec has no %s namespace of its own", wanted)
		}
	}
	for _, ids := range [][]specs.LinuxIDMapping{s.Linux.UIDMappings, s.Linux.GIDMappings} {
		if len(ids) != 1 || ids[0].ContainerID != 0 || ids[0].Size != 1<<16 || ids[0].HostID < firstUID {
			return cgroup.Limits{}, fmt.Errorf("users must be one range of 65536 from %d on", firstUID)
		}
	}
	for _, m := range s.Mounts {
		bound := slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
		if bound && !slices.Contains(m.Options, "ro") {
			return cgroup.Limits{}, fmt.Errorf("the mount at %s isn't read-only", m.Destination)
		}
	}
	p := s.Process
	if !p.NoNewPrivileges || len(p.Args) == 0 || p.Capabilities == nil {
		return cgroup.Limits{}, errors.New("the process needs arguments, its capabilities, and no new privileges")
	}
	c := p.Capabilities
	for _, name := range slices.Concat(c.Bounding, c.Effective, c.Permitted, c.Inheritable, c.Ambient) {
		if !slices.Contains(capabilities, name) {
			return cgroup.Limits{}, fmt.Errorf("a sandbox can't have %s", name)
		}
	}
	limits, err := helper.Limits(s)
	if c := q.Commands; err == nil && c != nil && (c.Memory <= 0 || c.Memory >= limits.Memory || c.Processes <= 0 || c.Processes >= limits.Processes) {
		return cgroup.Limits{}, errors.New("the commands' limits must be less than the sandbox's")
	}
	return limits, err
}
