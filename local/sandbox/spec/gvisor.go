package spec

import (
	"path"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// SocketName is the name of the socket that an agent with its own kernel makes in the directory
// that it gets for that.
const SocketName = "agent.sock"

// Overheads of gVisor. Its cgroups hold gVisor itself: its kernel, its helpers, and all memory of
// what runs inside, so it needs more than the runner's resources. Its own kernel limits the
// processes inside, the agent's threads included; on the machine each of these takes one or two
// threads, besides about fifty of gVisor's own.
const (
	gvisorMemory    = 64 // MiB on top of the runner's memory; it uses 22 when idle
	gvisorPerMiB    = 4  // processes for each further MiB
	gvisorThreads   = 96 // threads on the machine when nothing runs inside
	gvisorPerThread = 3  // most threads on the machine for one inside
	agentInside     = 24 // threads of the agent inside
)

// gvisorStack is the largest stack of gVisor's kernel, in bytes. It maps a smaller one than the limit
// says otherwise, and Ruby, which touches the end of its stack, gets SIGSEGV.
const gvisorStack = 128 << 20

// inside returns the process limit that gVisor's kernel enforces.
func inside(r Resources) int { return r.Processes + agentInside }

// GVisorFootprint returns the most that a gVisor sandbox takes of the machine.
func GVisorFootprint(r Resources) Resources {
	r.MemoryMiB += gvisorMemory + r.Processes/gvisorPerMiB
	r.Processes = gvisorThreads + gvisorPerThread*inside(r)
	return r
}

// forGVisor adapts a spec of namespaces to gVisor. Its kernel has no time namespaces, and needs
// none: its clocks start with it.
func forGVisor(spec *specs.Spec, s Sandbox, m Machine) {
	spec.Process.Args = []string{
		AgentPath, "serve", "--outside", path.Join(path.Dir(AgentPath), SocketName), "--processes", strconv.Itoa(s.Resources.Processes),
		"--memory-mib", strconv.Itoa(s.Resources.MemoryMiB), "--cpu-quota", strconv.FormatInt(quota(s.Resources, m), 10),
	}
	stack := slices.IndexFunc(spec.Process.Rlimits, isStack)
	spec.Process.Rlimits[stack].Soft = min(spec.Process.Rlimits[stack].Soft, gvisorStack)
	spec.Linux.TimeOffsets = nil
	spec.Linux.Namespaces = slices.DeleteFunc(spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.TimeNamespace })
	takes := GVisorFootprint(s.Resources)
	*spec.Linux.Resources.Memory.Limit = int64(takes.MemoryMiB) << 20 // also that of swap
	*spec.Linux.Resources.Pids.Limit = int64(takes.Processes)
	if !s.Root.Image { // an image's agent is a mount anyway
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: AgentPath, Source: path.Join(s.Root.Path, AgentPath), Options: []string{"bind", "ro", "nosuid", "nodev"}})
	}
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup"})
}
