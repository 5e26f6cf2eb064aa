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
	"github.com/rockpool/rockpool/runtime/finding"
)

// An account is something that the machine has once for all that run on it, of which
// each runner takes a bounded part.
type account struct {
	setting  string // of the kernel's: how much there is
	what     string
	reserved int64 // for others
	each     int64 // what a runner of the default size takes at most
}

// filesPerMiB is how many open files a runner's mappings can keep: a file and a mapping
// take some 400 bytes of its memory.
const filesPerMiB = 2500

func accountsShared() []account {
	r := runtime.DefaultResources()
	return []account{
		{"fs.file-max", "open files", 0, int64(spec.OpenFiles(spec.Resources(r))*r.Processes + filesPerMiB*r.MemoryMiB)},
		{"fs.inotify.max_user_instances", "inotify instances", 0, 2 * spec.InotifyInstances},
		{"fs.inotify.max_user_watches", "inotify watches", 0, 2 * spec.InotifyWatches},
		{"kernel.pid_max", "processes", 0, int64(r.Processes) + spec.AgentRoomThreads + 4},
		{"kernel.threads-max", "processes", 0, int64(r.Processes) + spec.AgentRoomThreads + 4},
		{"net.ipv4.tcp_max_orphans", "connections that end", 0, 6710}, // 16 MiB of them
		{"kernel.pty.max", "terminals", 1024, spec.Terminals},
	}
}

// fewRunners is how many that take all they can must not use up an account.
const fewRunners = 100

// accounts looks at what the machine counts for all runners together.
func accounts() []finding.Finding {
	var short, settings []string
	for _, a := range accountsShared() {
		has, err := kernelSetting(a.setting)
		if err != nil {
			continue // this kernel doesn't have it
		}
		if runners := (has - a.reserved) / a.each; runners < fewRunners {
			short = append(short, fmt.Sprintf("%d use up its %s", runners, a.what))
			settings = append(settings, fmt.Sprintf("%s=%d", a.setting, min(a.reserved+1000*a.each, math.MaxInt32)))
		}
	}
	found := []finding.Finding{finding.Fine("accounts", "%d runners together don't use up what it has for all", fewRunners)}
	if len(short) > 0 {
		found[0] = finding.Warning("accounts", "raise them: sudo sysctl -w "+strings.Join(settings, " ")+"\nand for good, install packaging/rockpool-sysctl.conf in /etc/sysctl.d",
			"few runners that take all they can keep others from starting: %s", strings.Join(short, ", "))
	}
	found = append(found, diskReads())
	if mode, err := kernelSetting("vm.overcommit_memory"); err == nil && mode == 2 {
		found = append(found, finding.Warning("memory", "sudo sysctl -w vm.overcommit_memory=0",
			"a runner can reserve memory that it doesn't use, and the machine then refuses others theirs: vm.overcommit_memory is 2"))
	}
	if alone, err := kernelSetting("net.core.high_order_alloc_disable"); err == nil && alone == 0 {
		found = append(found, finding.Warning("network buffers", "sudo sysctl -w net.core.high_order_alloc_disable=1\nand for good, install packaging/rockpool-sysctl.conf in /etc/sysctl.d",
			"a runner's packets of one byte can each hold 32 KiB that the kernel counts for nobody; with net.core.high_order_alloc_disable=1 it is 4 KiB"))
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

// diskReads looks whether what runners read from a disk can be limited.
func diskReads() finding.Finding {
	const name, advice = "disk reads", "a runner that reads much slows the disk for others. Have /usr on a local disk, with ext4 or xfs, and a kernel that has blk-throttle"
	trees, err := cgroup.Mounted()
	if err != nil {
		return finding.Warning(name, advice, "there are no control groups: %v", err)
	}
	disks, err := cgroup.Disks("/usr")
	switch {
	case err != nil:
		return finding.Warning(name, advice, "the disk of /usr can't be found: %v", err)
	case len(disks) == 0:
		return finding.Warning(name, advice, "/usr is on no disk of this machine's whose reads can be limited")
	case !trees.LimitsReads():
		return finding.Warning(name, advice, "no control groups limit them: neither io of version 2 nor blkio")
	}
	return finding.Fine(name, "each runner's can be limited on the disk %s: --disk-read, 128 MiB a second by default", strings.Join(disks, ", "))
}

// judgeBoot looks at what the kernel was started with.
func judgeBoot(options string) (found []finding.Finding) {
	for option := range strings.FieldsSeq(options) {
		if off, is := strings.CutPrefix(option, "cgroup.memory="); is && (strings.Contains(off, "nosocket") || strings.Contains(off, "nokmem")) {
			found = append(found, finding.Warning("memory", "remove it from the kernel's command line, and restart the machine",
				"what runners take of the kernel's memory isn't counted for them: the kernel was started with %s", option))
		}
	}
	return found
}

// judgeCores looks at what takes cores, with the highest limit that the server can set.
func judgeCores(pattern string, most uint64) []finding.Finding {
	const name = "cores"
	if !strings.HasPrefix(pattern, "|") && !strings.HasPrefix(pattern, "@") {
		return nil // a file, which no program of a runner's may write
	}
	taker := strings.Fields(pattern[1:] + " ?")[0]
	if pattern[0] == '|' && most > 0 {
		return []finding.Finding{finding.Fine(name, "%s takes cores of the machine's programs; runners' are refused to it", taker)}
	}
	return []finding.Finding{finding.Warning(name, "sudo sysctl -w kernel.core_pattern=core, or let the limit of cores be above 0 (LimitCORE= in the unit) where a program takes them from a pipe",
		"%s gets the cores of what crashes in runners, with all their memory: the kernel doesn't keep them from it here", taker)}
}

// kernelSetting reads a number of the kernel's settings. More than an int64 holds is its
// highest.
func kernelSetting(name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return int64(min(n, math.MaxInt64)), err
}
