// Package spec defines what a sandbox is: it makes the OCI runtime spec from checked numbers and
// names and from properties of the machine. It also makes the root directory that sandboxes share.
// Every start of rockpool-sandbox pays for this package's imports.
package spec

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
)

// Paths inside a sandbox.
const (
	AgentPath    = "/.rockpool/agent"
	ResolverPath = "/.rockpool/resolv.conf" // of sandboxes with a network
	Workspace    = "/workspace"
	caches       = "/var/cache/rockpool" // agent.Caches
	home         = "/tmp/home"           // runtime.Home, which this package may not import; the agent makes it
)

// User ids of sandboxes: FirstUID + slot*UIDs is the root user of the sandbox with that slot.
const (
	FirstUID = 1_000_000_000
	UIDs     = 1 << 16
	MaxSlots = (1<<32-1-FirstUID)/UIDs - 1
)

// ImageOwners is the root user among the owners of images' files, if the server isn't root and so
// can't give files to the machine's users 0 to 65535. Its range follows those of sandboxes.
const ImageOwners = FirstUID + MaxSlots*UIDs

// cpuPeriod is the kernel's default period of CPU limits, in microseconds.
const cpuPeriod = 100_000

// A Sandbox is what a sandbox's spec is made from, besides the machine.
type Sandbox struct {
	Group     string // its cgroup's path
	Slot      int    // number of its range of user ids: 0 to MaxSlots-1
	Users     *Users // nil means the range of the slot
	Resources Resources
	Root      Root
	Zygote    bool   // its agent can preload an interpreter
	GVisor    bool   // it has a kernel of its own
	Resolver  string // the machine's file to mount as /etc/resolv.conf, "" for an empty one
}

// Users is the range of the machine's ids for a sandbox's users 0 to Count-1.
type Users struct{ First, Count int }

// Resources are a sandbox's limits, with the units of the server's runtime.Resources.
type Resources struct {
	CPUMHz       int `json:"cpuMHz"`
	MemoryMiB    int `json:"memoryMiB"`
	Processes    int `json:"processes"`
	WorkspaceMiB int `json:"workspaceMiB"`
}

// A Root is a root directory of sandboxes.
type Root struct {
	Path  string // made by BuildRoot, or an image's root
	Image bool   // an image's root, whose files belong to the sandbox's users 0 to 65535
	Agent string // with Image: path of the agent's file
}

// ImageRoot returns what must exist in an image's root: directories, and files with their contents.
func ImageRoot() (directories []string, files map[string]string) {
	files = map[string]string{AgentPath: ""}
	for _, at := range []string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"} {
		files[at] = ownFiles[at]
	}
	return []string{"/proc", "/sys", "/dev", "/tmp", Workspace, path.Dir(AgentPath)}, files
}

// New returns the OCI runtime spec of a sandbox.
//
// The network namespace has one interface, lo, which is up; package firewall adds another one later.
// The clocks that count from boot start at about 0. Programs see the hardware of a [View], which must
// exist, except with gVisor.
func New(s Sandbox, m Machine) *specs.Spec {
	made := newSpec(s, m)
	if s.GVisor {
		forGVisor(made, s, m)
	}
	return made
}

func newSpec(s Sandbox, m Machine) *specs.Spec {
	if s.Users == nil {
		s.Users = &Users{First: FirstUID + s.Slot*UIDs, Count: UIDs}
	}
	args := []string{AgentPath, "serve", "--fd", "3", "--open-files", strconv.Itoa(OpenFiles(s.Resources))}
	if s.Zygote {
		args = append(args, "--zygote")
	}
	users := []specs.LinuxIDMapping{{ContainerID: 0, HostID: uint32(s.Users.First), Size: uint32(s.Users.Count)}}
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: hostname,
		Root:     &specs.Root{Path: s.Root.Path, Readonly: true},
		Process: &specs.Process{
			Args:            args,
			Env:             []string{"PATH=" + searchPath, "HOME=" + home, "GOMAXPROCS=1"},
			Cwd:             "/",
			NoNewPrivileges: true,
			Rlimits:         withStack(s.Resources),
			Capabilities: &specs.LinuxCapabilities{
				Bounding:  agentCapabilities,
				Effective: agentCapabilities,
				Permitted: agentCapabilities,
			},
		},
		Mounts: mounts(s, m),
		Linux: &specs.Linux{
			UIDMappings: users,
			GIDMappings: users,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace}, {Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
				{Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.CgroupNamespace},
				{Type: specs.NetworkNamespace}, {Type: specs.TimeNamespace},
			},
			TimeOffsets:       sinceNow(),
			CgroupsPath:       s.Group,
			Resources:         limits(s.Resources, m),
			RootfsPropagation: "private",
			MaskedPaths:       maskedPaths,
			ReadonlyPaths:     []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

// rlimits has every limit, so that none is inherited from the server. The first ones limit what runners share
// through the accounts of the machine's users; control groups limit the rest. They apply to the agent; commands
// may have fewer open files.
var rlimits = []specs.POSIXRlimit{
	// The kernel charges these three to root's account, too.
	{Type: "RLIMIT_SIGPENDING", Soft: 256, Hard: 256},
	{Type: "RLIMIT_MSGQUEUE", Soft: 0, Hard: 0},
	{Type: "RLIMIT_MEMLOCK", Soft: 64 << 10, Hard: 64 << 10},
	{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 4096},
	{Type: "RLIMIT_CORE", Soft: 1, Hard: 1}, // with 0 the kernel still pipes core dumps to a program (core(5))
	{Type: "RLIMIT_NICE", Soft: 0, Hard: 0},
	{Type: "RLIMIT_RTPRIO", Soft: 0, Hard: 0},
	{Type: "RLIMIT_CPU", Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY},
	{Type: "RLIMIT_FSIZE", Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY},
	{Type: "RLIMIT_DATA", Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY},
	{Type: "RLIMIT_STACK", Soft: fewestStack, Hard: unix.RLIM_INFINITY},
	{Type: "RLIMIT_RSS", Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY},
	{Type: "RLIMIT_NPROC", Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY},
	{Type: "RLIMIT_AS", Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY},
	{Type: "RLIMIT_LOCKS", Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY},
	{Type: "RLIMIT_RTTIME", Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY},
}

const fewestStack = 8 << 20

// StackLimit returns how large the stack of each process of a sandbox may become, in bytes: nearly
// as large as its memory, as much as a deep recursion needs. C libraries also give each thread that
// much address space, so it stays at the default if the machine counts address space as memory.
func StackLimit(r Resources) uint64 {
	const strict = "2" // Documentation/mm/overcommit-accounting of the kernel
	if mode, err := os.ReadFile("/proc/sys/vm/overcommit_memory"); err != nil || strings.TrimSpace(string(mode)) == strict {
		return fewestStack
	}
	return max(uint64(r.MemoryMiB)<<20/16*15, fewestStack)
}

func withStack(r Resources) []specs.POSIXRlimit {
	all := slices.Clone(rlimits)
	all[slices.IndexFunc(all, isStack)].Soft = StackLimit(r)
	return all
}

func isStack(l specs.POSIXRlimit) bool { return l.Type == "RLIMIT_STACK" }

// RlimitNumbers has the kernel's number of each rlimit.
var RlimitNumbers = map[string]int{
	"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK,
	"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO,
	"RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_STACK": unix.RLIMIT_STACK,
	"RLIMIT_RSS": unix.RLIMIT_RSS, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS,
	"RLIMIT_RTTIME": unix.RLIMIT_RTTIME,
}

// Inherited describes what programs of a server inherit from the process that started it, since only root could
// undo it: lower hard limits, and a lower priority. It is "" if there is nothing.
func Inherited() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return ""
	}
	can := func(capability int) bool { return data[0].Effective&(1<<capability) != 0 }
	var all []string
	for _, limit := range rlimits {
		var own unix.Rlimit
		// By default users have a limit of processes; of core files, none is as good as 1 byte.
		if limit.Type == "RLIMIT_NPROC" || limit.Type == "RLIMIT_CORE" {
			continue
		}
		if !can(unix.CAP_SYS_RESOURCE) && unix.Getrlimit(RlimitNumbers[limit.Type], &own) == nil && own.Max < limit.Soft {
			all = append(all, fmt.Sprintf("the hard limit %s is %d", limit.Type, own.Max))
		}
	}
	if nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && nice < 20 && !can(unix.CAP_SYS_NICE) { // the system call returns 20-nice
		all = append(all, fmt.Sprintf("the nice value is %d", 20-nice))
	}
	if len(all) == 0 {
		return ""
	}
	return "programs inherit limits of the process that started the server (start it without nice and with higher hard limits): " + strings.Join(all, "; ")
}

// Bounds of open files per process. All processes of a runner together have at most allFiles, so
// that a few runners can't exhaust the machine's; but each may have fewestFiles.
const (
	allFiles    = 1 << 17
	fewestFiles = 256
	mostFiles   = 1024 // what programs expect
)

// OpenFiles returns how many files each process of a sandbox may have open.
func OpenFiles(r Resources) int {
	return min(max(allFiles/max(r.Processes, 1), fewestFiles), mostFiles)
}

// Limits of inotify for each user of a sandbox. The kernel also charges them to the user who made
// the sandbox, who has 128 instances by default.
const (
	InotifyInstances = 16
	InotifyWatches   = 8192
)

// Terminals is the number of pseudo-terminals of a sandbox. The machine has 4096 by default, 1024
// of them reserved for itself.
const Terminals = 32

const (
	hostname   = "runner"
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// agentCapabilities are what the agent needs to start commands as other users, end them, and write
// files for them. They hold only in the sandbox's user namespace.
var agentCapabilities = []string{
	"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER",
}

// maskedPaths are those that runc masks, and those that reveal which machine this is.
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
	"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/interrupts",
	"/proc/cmdline", "/proc/sys/kernel/random/boot_id", "/proc/swaps", "/proc/partitions", "/proc/diskstats",
	"/proc/config.gz", "/proc/key-users", "/proc/pressure", "/proc/vmstat", "/proc/zoneinfo", "/proc/consoles",
	"/proc/buddyinfo", "/proc/pagetypeinfo", "/proc/slabinfo", "/proc/vmallocinfo", "/proc/modules", "/proc/kallsyms", "/proc/mdstat",
}

// terminalGroup is the group tty of /etc/group.
const terminalGroup = 5

// mounts returns the mounts of a sandbox, in order. Everything writable is a tmpfs with a size
// limit.
func mounts(s Sandbox, m Machine) []specs.Mount {
	size := func(mib int) string { return fmt.Sprintf("size=%dm", mib) }
	terminals := []string{"nosuid", "noexec", "newinstance", fmt.Sprintf("max=%d", Terminals), "ptmxmode=0666", "mode=0620"}
	if s.Users == nil || s.Users.Count > terminalGroup {
		terminals = append(terminals, fmt.Sprintf("gid=%d", terminalGroup))
	}
	// An inode takes about 1 KiB of the runner's memory, and doesn't count against the tmpfs's size.
	inodes := fmt.Sprintf("nr_inodes=%d", 256*s.Resources.WorkspaceMiB+1024)
	shared := fmt.Sprintf("nr_inodes=%d", 256*s.Resources.MemoryMiB+1024)
	all := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
		{Destination: "/dev", Type: "tmpfs", Source: "dev", Options: []string{"nosuid", "noexec", "mode=755", "size=64k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: terminals},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "noexec", "mode=1777", shared, size(max(1, s.Resources.MemoryMiB/2))}},
		{Destination: Workspace, Type: "tmpfs", Source: "workspace", Options: []string{"nosuid", "nodev", "mode=1777", inodes, size(s.Resources.WorkspaceMiB)}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmp", Options: []string{"nosuid", "nodev", "mode=1777", inodes, size(2 * s.Resources.WorkspaceMiB)}}, // with home
	}
	if s.Resolver != "" {
		all = append(all, specs.Mount{Destination: "/etc/resolv.conf", Source: s.Resolver, Options: []string{"bind", "ro", "nosuid", "nodev", "noexec"}})
	}
	if !s.GVisor {
		all = append(all, ViewOf(s.Resources, m).mounts()...)
	}
	if s.Root.Image {
		return append(all, specs.Mount{Destination: AgentPath, Source: s.Root.Agent, Options: []string{"bind", "ro", "nosuid", "nodev"}})
	}
	for _, at := range m.Binds {
		all = append(all, specs.Mount{Destination: at, Source: at, Options: []string{"rbind", "ro", "rro", "nosuid", "nodev", "rnosuid", "rnodev"}})
	}
	return all
}

// agentThreads is the share of the agent's own threads in the cgroup's process limit: it has 9, and
// the Go runtime aborts if it can't create one more.
const agentThreads = 16

// Resources of the agent in addition to the commands' limits, if commands have cgroups of their
// own.
const (
	// With 2000 concurrent starts on a busy machine the agent used 47 threads: the runtime makes a
	// thread while others are in system calls, and aborts if it can't.
	AgentRoomThreads = 128
	agentRoomMemory  = 24 << 20 // bytes; the agent keeps its heap below
	agentRoomCPU     = 20_000   // microseconds of CPU time per cpuPeriod
)

// Commands returns the limits of all commands of a sandbox together, if they have cgroups of their
// own.
func Commands(r Resources, m Machine) cgroup.Limits {
	return cgroup.Limits{Memory: int64(r.MemoryMiB) << 20, Processes: int64(r.Processes) + m.Launchers, CPUQuota: quota(r, m), CPUPeriod: cpuPeriod}
}

// quota returns the CPU time that commands may use in each cpuPeriod, in microseconds.
func quota(r Resources, m Machine) int64 {
	return max(int64(r.CPUMHz)*cpuPeriod/int64(m.CoreMHz), 1000) // the kernel's minimum
}

// limits returns the cgroup limits of a sandbox: those of its commands, plus room for the agent.
func limits(r Resources, m Machine) *specs.LinuxResources {
	memory := int64(r.MemoryMiB) << 20
	processes := int64(r.Processes) + agentThreads
	quota := quota(r, m)
	if m.Undivided == nil {
		all := Commands(r, m)
		memory, processes = all.Memory+agentRoomMemory, all.Processes+AgentRoomThreads
		if m.SeparateCPU {
			quota += agentRoomCPU
		}
	}
	period := uint64(cpuPeriod)
	shares := uint64(min(max(r.CPUMHz, 2), 1<<18)) // as in Nomad, within the kernel's bounds
	limits := &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &memory},
		Pids:   &specs.LinuxPids{Limit: &processes},
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period, Shares: &shares},
		// libcontainer adds what is allowed: the six devices in /dev, and terminals.
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
	}
	if m.Swap {
		limits.Memory.Swap = &memory // limit of memory and swap together
	}
	for _, lacking := range m.Lacks {
		switch lacking {
		case cgroup.LimitMemory:
			limits.Memory = nil
		case cgroup.LimitProcesses:
			limits.Pids = nil
		case cgroup.LimitCPU:
			limits.CPU = nil
		}
	}
	return limits
}

// sinceNow returns the time offsets that start a sandbox's clocks now, so that programs can't see
// how long the machine has been running.
func sinceNow() map[string]specs.LinuxTimeOffset {
	offsets := map[string]specs.LinuxTimeOffset{}
	for name, clock := range map[string]int32{"monotonic": unix.CLOCK_MONOTONIC, "boottime": unix.CLOCK_BOOTTIME} {
		var now unix.Timespec
		if unix.ClockGettime(clock, &now) == nil {
			offsets[name] = specs.LinuxTimeOffset{Secs: -int64(time.Duration(now.Nano()) / time.Second)}
		}
	}
	return offsets
}

// Limits returns the limits that a spec sets. It returns an error if one is missing that isn't in
// lacks.
func Limits(s *specs.Spec, lacks []string) (cgroup.Limits, error) {
	r, wanted := s.Linux.Resources, cgroup.Limits{}
	if m := r.Memory; m != nil && m.Limit != nil {
		wanted.Memory = *m.Limit
	}
	if p := r.Pids; p != nil && p.Limit != nil {
		wanted.Processes = *p.Limit
	}
	if c := r.CPU; c != nil && c.Quota != nil && c.Period != nil {
		wanted.CPUQuota, wanted.CPUPeriod = *c.Quota, int64(*c.Period)
	}
	for name, limit := range map[string]int64{
		cgroup.LimitMemory: wanted.Memory, cgroup.LimitProcesses: wanted.Processes, cgroup.LimitCPU: min(wanted.CPUQuota, wanted.CPUPeriod),
	} {
		if limit <= 0 && !slices.Contains(lacks, name) {
			return cgroup.Limits{}, fmt.Errorf("the spec doesn't limit %s", name)
		}
	}
	return wanted, nil
}
