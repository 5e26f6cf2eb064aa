package doctor

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

// An account is a kernel resource that all runners and other programs share. Each runner can take a
// bounded part of it.
type account struct {
	setting  string // kernel setting with the total
	what     string
	reserved int64 // reserved for other programs
	each     int64 // maximum that a runner of the default size can take
}

// filesPerMiB is the number of open files that mappings can hold per MiB of a runner's memory: a
// file and a mapping take about 400 bytes.
const filesPerMiB = 2500

// accountsShared returns the shared resources with what a runner of the default size can take of
// each.
func accountsShared() []account {
	r := runtime.DefaultResources()
	return []account{
		{"fs.file-max", "open files", 0, int64(spec.OpenFiles(spec.Resources(r))*r.Processes + filesPerMiB*r.MemoryMiB)},
		{"fs.inotify.max_user_instances", "inotify instances", 0, 2 * spec.InotifyInstances},
		{"fs.inotify.max_user_watches", "inotify watches", 0, 2 * spec.InotifyWatches},
		{"kernel.pid_max", "processes", 0, int64(r.Processes) + spec.AgentRoomThreads + 4},
		{"kernel.threads-max", "processes", 0, int64(r.Processes) + spec.AgentRoomThreads + 4},
		{"net.ipv4.tcp_max_orphans", "closing connections", 0, 6710}, // 16 MiB of them
		{"kernel.pty.max", "terminals", 1024, spec.Terminals},
	}
}

// fewRunners is the number of runners that must not exhaust an account, even if each takes its maximum.
const fewRunners = 100

func accounts() []health.Finding {
	var short, settings []string
	for _, a := range accountsShared() {
		has, err := kernelSetting(a.setting)
		if err != nil {
			continue // this kernel lacks the setting
		}
		if runners := (has - a.reserved) / a.each; runners < fewRunners {
			short = append(short, fmt.Sprintf("%d runners exhaust its %s", runners, a.what))
			settings = append(settings, fmt.Sprintf("%s=%d", a.setting, min(a.reserved+1000*a.each, math.MaxInt32)))
		}
	}
	found := []health.Finding{health.Fine("accounts", "%d runners together can't exhaust the machine's totals", fewRunners)}
	if len(short) > 0 {
		found[0] = health.Warning("accounts", "raise the totals: sudo sysctl -w "+strings.Join(settings, " ")+"\nto keep them after a restart, install packaging/rockpool-sysctl.conf in /etc/sysctl.d",
			"a few runners can exhaust a total of the machine, so that no others start: %s", strings.Join(short, ", "))
	}
	found = append(found, diskReads())
	if mode, err := kernelSetting("vm.overcommit_memory"); err == nil && mode == 2 {
		found = append(found, health.Warning("memory", "sudo sysctl -w vm.overcommit_memory=0",
			"vm.overcommit_memory is 2: a runner can reserve memory without using it, and the machine then refuses memory to others"))
	}
	if alone, err := kernelSetting("net.core.high_order_alloc_disable"); err == nil && alone == 0 {
		found = append(found, health.Warning("network buffers", "sudo sysctl -w net.core.high_order_alloc_disable=1\nto keep it after a restart, install packaging/rockpool-sysctl.conf in /etc/sysctl.d",
			"each one-byte packet of a runner can hold 32 KiB that the kernel charges to no limit; with net.core.high_order_alloc_disable=1 it is 4 KiB"))
	}
	if options, err := os.ReadFile("/proc/cmdline"); err == nil {
		found = append(found, judgeBoot(string(options))...)
	}
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	var limit unix.Rlimit
	if err == nil && unix.Getrlimit(unix.RLIMIT_CORE, &limit) == nil {
		found = append(found, judgeCores(strings.TrimSpace(string(pattern)), limit.Max)...)
	}
	return found
}

// diskReads checks whether the runners' disk reads can be limited.
func diskReads() health.Finding {
	const name, advice = "disk reads", "a runner that reads a lot slows the disk down for others. Put /usr on a local disk with ext4 or xfs, and use a kernel with blk-throttle"
	trees, err := cgroup.Mounted()
	if err != nil {
		return health.Warning(name, advice, "control groups are unavailable: %v", err)
	}
	disks, err := cgroup.Disks("/usr")
	switch {
	case err != nil:
		return health.Warning(name, advice, "the disk of /usr can't be found: %v", err)
	case len(disks) == 0:
		return health.Warning(name, advice, "/usr isn't on a local disk whose reads can be limited")
	case !trees.LimitsReads():
		return health.Warning(name, advice, "no cgroup controller limits them: neither io (version 2) nor blkio (version 1) is available")
	}
	return health.Fine(name, "each runner's disk reads can be limited on %s: --disk-read, 128 MiB a second by default", strings.Join(disks, ", "))
}

func judgeBoot(options string) (found []health.Finding) {
	for option := range strings.FieldsSeq(options) {
		if off, is := strings.CutPrefix(option, "cgroup.memory="); is && (strings.Contains(off, "nosocket") || strings.Contains(off, "nokmem")) {
			found = append(found, health.Warning("memory", "remove the option from the kernel's command line, and restart the machine",
				"kernel memory isn't charged to the runners that use it: the kernel was started with %s", option))
		}
	}
	return found
}

// judgeCores checks which program receives core dumps. most is the highest RLIMIT_CORE that the
// server can set.
func judgeCores(pattern string, most uint64) []health.Finding {
	const name = "cores"
	if !strings.HasPrefix(pattern, "|") && !strings.HasPrefix(pattern, "@") {
		return nil // a file, which no program in a runner may write
	}
	receiver := strings.Fields(pattern[1:] + " ?")[0]
	if pattern[0] == '|' && most > 0 {
		return []health.Finding{health.Fine(name, "%s gets the core dumps of the machine's programs, but not those of runners", receiver)}
	}
	return []health.Finding{health.Warning(name, "sudo sysctl -w kernel.core_pattern=core, or, if the pattern begins with |, set a core limit above 0 (LimitCORE= in the unit)",
		"%s gets the core dumps of programs that crash in runners, with their memory: this machine's settings don't prevent it", receiver)}
}

// kernelSetting reads a numeric sysctl. A value above the range of int64 becomes the highest int64.
func kernelSetting(name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return int64(min(n, math.MaxInt64)), err
}
