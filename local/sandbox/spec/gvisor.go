package spec

import (
	"path"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// SocketName is what an agent that makes its socket itself calls it, in the
// directory that it gets for that.
const SocketName = "agent.sock"

// With gVisor the machine's control groups hold gVisor itself, with its kernel, its
// helpers and all memory of what runs inside, which it needs more of. Processes
// inside are limited by its kernel, the agent's threads included; on the machine
// each takes one or two, beside some fifty that gVisor has anyway.
const (
	gvisorMemory    = 64 // MiB beside the runner's memory: 22 when idle
	gvisorPerMiB    = 4  // processes that take one more
	gvisorThreads   = 96 // on the machine, when nothing runs
	gvisorPerThread = 3  // on the machine, at most, for one inside
	agentInside     = 24 // threads of the agent inside
)

// inside returns the limit of processes that the kernel inside holds.
func inside(r Resources) int { return r.Processes + agentInside }

// TakenByGVisor returns what a sandbox takes of the machine at most that has a
// kernel of its own.
func TakenByGVisor(r Resources) Resources {
	r.MemoryMiB += gvisorMemory + r.Processes/gvisorPerMiB
	r.Processes = gvisorThreads + gvisorPerThread*inside(r)
	return r
}

// forGVisor changes what differs from namespaces. The kernel inside has no time
// namespaces, and needs none: its clocks began with it.
func forGVisor(spec *specs.Spec, s Sandbox) {
	spec.Process.Args = []string{
		AgentPath, "serve", "--outside", path.Join(path.Dir(AgentPath), SocketName), "--processes", strconv.Itoa(inside(s.Resources)),
	}
	spec.Linux.TimeOffsets = nil
	spec.Linux.Namespaces = slices.DeleteFunc(spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.TimeNamespace })
	takes := TakenByGVisor(s.Resources)
	*spec.Linux.Resources.Memory.Limit = int64(takes.MemoryMiB) << 20 // also that of swap
	*spec.Linux.Resources.Pids.Limit = int64(takes.Processes)
	if !s.Root.Image { // whose agent is a mount anyway
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: AgentPath, Source: path.Join(s.Root.Path, AgentPath), Options: []string{"bind", "ro", "nosuid", "nodev"}})
	}
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup"})
}
