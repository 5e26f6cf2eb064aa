package sandbox

import (
	"path"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rockpool/rockpool/runtime"
)

// SocketName is what an agent that makes its socket itself calls it, in the
// directory that it gets for that.
const SocketName = "agent.sock"

// With gVisor the machine's control groups hold gVisor itself, with its kernel, its
// helpers and all memory of what runs inside, which it needs more of. Processes
// inside are limited by its kernel, the agent's threads included; on the machine
// each takes one or two, beside some fifty that gVisor has anyway.
const (
	gvisorMemory    = 64 << 20 // bytes beside the runner's memory: 22 MiB when idle, more with each process
	gvisorThreads   = 96       // on the machine, when nothing runs
	gvisorPerThread = 3        // on the machine, at most, for one inside
	agentInside     = 24       // threads of the agent inside
)

// inside returns the limit of processes that the kernel inside holds.
func inside(r runtime.Resources) int { return r.Processes + agentInside }

// Takes returns what a runner takes of the machine at most: its resources, and
// what its isolation needs beside them.
func Takes(env runtime.Environment) runtime.Resources {
	r := env.Resources
	if env.Isolation == runtime.IsolationGVisor {
		r.MemoryMiB += gvisorMemory >> 20
		r.Processes = gvisorThreads + gvisorPerThread*inside(r)
	}
	return r
}

// forGVisor changes what differs from namespaces. The kernel inside has no time
// namespaces, and needs none: its clocks began with it.
func forGVisor(spec *specs.Spec, env runtime.Environment, root Root) {
	spec.Process.Args = []string{
		AgentPath, "serve", "--outside", path.Join(path.Dir(AgentPath), SocketName), "--processes", strconv.Itoa(inside(env.Resources)),
	}
	spec.Linux.TimeOffsets = nil
	spec.Linux.Namespaces = slices.DeleteFunc(spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.TimeNamespace })
	takes := Takes(env)
	*spec.Linux.Resources.Memory.Limit = int64(takes.MemoryMiB) << 20 // also that of swap
	*spec.Linux.Resources.Pids.Limit = int64(takes.Processes)
	if !root.Image { // whose agent is a mount anyway
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: AgentPath, Source: path.Join(root.Path, AgentPath), Options: []string{"bind", "ro", "nosuid", "nodev"}})
	}
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup"})
}
