package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
)

// Views is the directory of the views. Only root can write to it.
const Views = "/run/rockpool/views"

// viewVersion changes with each change of a view's files: servers of different versions share
// [Views].
const viewVersion = "1"

// viewOrigin returns a name for what views are made from, except their size. It changes with each
// boot, because the directory may outlast that.
func viewOrigin(trees cgroup.Hierarchies) string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	sum := sha256.Sum256([]byte(viewVersion + " " + strings.Join(trees.Shown(), " ") + " " + string(boot)))
	return hex.EncodeToString(sum[:8])
}

// cgroupMount is where a sandbox sees its own cgroup.
const cgroupMount = "/sys/fs/cgroup"

// A View is the hardware that programs see in /sys, /proc/meminfo and /proc/cpuinfo: memory and
// processors of their runner's size, not the machine's. Runtimes of languages choose the size of
// their heap and the number of their threads by it. The files don't change.
//
// System calls show the machine: sysinfo its memory, sched_getaffinity its processors. Processors
// may have numbers above those in /sys, because a runner may run on all.
type View struct {
	Origin          string // Machine.Views
	MemoryMiB, CPUs int
}

// ViewOf returns the view of a sandbox with these resources.
func ViewOf(r Resources, m Machine) View {
	cpus := (quota(r, m) + cpuPeriod - 1) / cpuPeriod
	return View{Origin: m.Views, MemoryMiB: r.MemoryMiB, CPUs: min(int(cpus), len(processors()))}
}

func (v View) dir() string {
	return filepath.Join(Views, fmt.Sprintf("%s-%d-%d", v.Origin, v.MemoryMiB, v.CPUs))
}

func (v View) mounts() []specs.Mount {
	options := []string{"bind", "ro", "nosuid", "nodev", "noexec"}
	return []specs.Mount{
		{Destination: "/sys", Source: v.dir() + "/sys", Options: options},
		{Destination: "/proc/meminfo", Source: v.dir() + "/meminfo", Options: options},
		{Destination: "/proc/cpuinfo", Source: v.dir() + "/cpuinfo", Options: options},
	}
}

// ByRuntime is the tree of a mount that an OCI runtime replaces by those of the machine's trees.
const ByRuntime = "/"

// ShowGroups adds mounts to a spec, read-only, with which a sandbox sees its own cgroups. The trees are
// from [cgroup.Hierarchies.OwnMounts]. Without a cgroup namespace it adds none: the sandbox would see the
// machine's cgroups.
func ShowGroups(s *specs.Spec, trees ...string) {
	if !slices.Contains(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace}) {
		return
	}
	for _, tree := range trees {
		m := specs.Mount{Destination: filepath.Join(cgroupMount, tree), Type: "cgroup", Source: "cgroup", Options: []string{"ro", "nosuid", "nodev", "noexec"}}
		switch tree {
		case "":
			m.Type = "cgroup2"
		case ByRuntime:
		default:
			m.Options = append(m.Options, tree)
		}
		s.Mounts = append(s.Mounts, m)
	}
}

// MakeViews makes the directory of the views, which every user can enter.
func MakeViews() error {
	return errors.Join(os.MkdirAll(Views, 0o755), os.Chmod(Views, 0o755)) // regardless of the umask
}

// keptUnused is how long a view stays that no sandbox uses: much longer than the start of a sandbox takes.
const keptUnused = time.Hour

// removeUnused removes the views that no process has mounted and that [View.Make] didn't return for a while.
func removeUnused() {
	views, _ := os.ReadDir(Views)
	used := map[string]bool{}
	tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, table := range tables {
		mounts, _ := os.ReadFile(table) // fails if the process has ended
		for _, view := range views {
			used[view.Name()] = used[view.Name()] || bytes.Contains(mounts, []byte("/"+view.Name()+"/"))
		}
	}
	for _, view := range views {
		if info, err := view.Info(); err != nil || used[view.Name()] || time.Since(info.ModTime()) < keptUnused {
			continue
		}
		at, removed := filepath.Join(Views, view.Name()), filepath.Join(Views, ".removed-"+view.Name())
		if os.Rename(at, removed) == nil { // whole views only have their names
			_ = os.RemoveAll(removed)
		}
	}
}

// Make makes the files of the view, unless they exist. A new view replaces those that nothing uses.
func (v View) Make(trees cgroup.Hierarchies) error {
	now := time.Now()
	if os.Chtimes(v.dir(), now, now) == nil {
		return nil
	}
	if err := MakeViews(); err != nil {
		return err
	}
	removeUnused()
	dir, err := os.MkdirTemp(Views, ".new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left after an error
	b := builder{dir: dir}
	b.directory("/")
	text, err := os.ReadFile("/proc/cpuinfo")
	b.keep(err)
	b.file("/cpuinfo", []byte(firstProcessors(string(text), v.CPUs)), 0o444)
	b.file("/meminfo", []byte(v.meminfo()), 0o444)
	b.directory(cgroupMount)
	for _, tree := range trees.Shown() {
		b.directory(cgroupMount + "/" + tree)
		if names := strings.Split(tree, ","); len(names) > 1 {
			for _, name := range names {
				b.symlink(tree, cgroupMount+"/"+name)
			}
		}
	}
	v.processors(&b)
	if b.err != nil {
		return b.err
	}
	err = os.Rename(dir, v.dir())
	if errors.Is(err, fs.ErrExist) {
		return nil // another process has made it meanwhile
	}
	return err
}

// MountMemory mounts the view's /proc/meminfo in the mount namespace of the caller, which must be its own.
func (v View) MountMemory(trees cgroup.Hierarchies) error {
	if err := v.Make(trees); err != nil {
		return err
	}
	return unix.Mount(v.dir()+"/meminfo", "/proc/meminfo", "", unix.MS_BIND, "")
}

func (v View) meminfo() string {
	var text strings.Builder
	all := v.MemoryMiB << 10
	for _, line := range []struct {
		name string
		kB   int
	}{
		{"MemTotal", all}, {"MemFree", all}, {"MemAvailable", all}, {"Buffers", 0}, {"Cached", 0}, {"SwapCached", 0},
		{"Active", 0}, {"Inactive", 0}, {"Active(anon)", 0}, {"Inactive(anon)", 0}, {"Active(file)", 0}, {"Inactive(file)", 0},
		{"Unevictable", 0}, {"Mlocked", 0}, {"SwapTotal", 0}, {"SwapFree", 0}, {"Dirty", 0}, {"Writeback", 0}, {"AnonPages", 0},
		{"Mapped", 0}, {"Shmem", 0}, {"KReclaimable", 0}, {"Slab", 0}, {"SReclaimable", 0}, {"SUnreclaim", 0}, {"KernelStack", 0},
		{"PageTables", 0}, {"CommitLimit", all}, {"Committed_AS", 0}, {"VmallocTotal", 1<<35 - 1}, {"VmallocUsed", 0}, {"VmallocChunk", 0},
	} {
		fmt.Fprintf(&text, "%-15s %8d kB\n", line.name+":", line.kB)
	}
	text.WriteString("HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n")
	return text.String()
}

// firstProcessors returns the first n entries of a /proc/cpuinfo, with the number of all adjusted.
func firstProcessors(text string, n int) string {
	var kept []string
	for entry := range strings.SplitSeq(text, "\n\n") {
		if len(kept) == n || !strings.HasPrefix(entry, "processor") {
			break
		}
		lines := strings.Split(entry, "\n")
		for i, line := range lines {
			name, _, _ := strings.Cut(line, ":")
			if field := strings.TrimSpace(name); field == "siblings" || field == "cpu cores" {
				lines[i] = name + ": " + strconv.Itoa(n)
			}
		}
		kept = append(kept, strings.Join(lines, "\n")+"\n")
	}
	return strings.Join(kept, "\n")
}

const sysCPU = "/sys/devices/system/cpu"

// processors makes the files about processors, in one NUMA node and one package.
func (v View) processors(b *builder) {
	list := "0"
	if v.CPUs > 1 {
		list = fmt.Sprintf("0-%d", v.CPUs-1)
	}
	mask := cpuMask(0, v.CPUs)
	put := func(at, text string) { b.file(at, []byte(text+"\n"), 0o444) }
	copied := func(at, from string) {
		if text, err := os.ReadFile(from); err == nil { // not every kernel has all
			b.file(at, text, 0o444)
		}
	}
	put(sysCPU+"/online", list)
	put(sysCPU+"/present", list)
	// Libraries use it as the size of a table for processors' numbers, which the machine chooses.
	copied(sysCPU+"/possible", sysCPU+"/possible")
	copied(sysCPU+"/kernel_max", sysCPU+"/kernel_max")
	for _, name := range []string{"enabled", "defrag", "shmem_enabled", "hpage_pmd_size"} {
		copied("/sys/kernel/mm/transparent_hugepage/"+name, "/sys/kernel/mm/transparent_hugepage/"+name)
	}
	const node = "/sys/devices/system/node"
	for _, name := range []string{"online", "possible", "has_cpu", "has_memory", "has_normal_memory"} {
		put(node+"/"+name, "0")
	}
	put(node+"/node0/cpulist", list)
	put(node+"/node0/cpumap", mask)
	put(node+"/node0/distance", "10")
	put(node+"/node0/meminfo", fmt.Sprintf("Node 0 MemTotal: %d kB\nNode 0 MemFree: %d kB", v.MemoryMiB<<10, v.MemoryMiB<<10))
	of := processors()
	for i, from := range of[:min(v.CPUs, len(of))] {
		own, from := fmt.Sprintf("%s/cpu%d", sysCPU, i), fmt.Sprintf("%s/cpu%d", sysCPU, from)
		alone, only := strconv.Itoa(i), cpuMask(i, 1)
		for name, text := range map[string]string{
			"physical_package_id": "0", "core_id": alone, "die_id": "0", "cluster_id": "0",
			"thread_siblings": only, "thread_siblings_list": alone, "core_cpus": only, "core_cpus_list": alone,
			"core_siblings": mask, "core_siblings_list": list, "package_cpus": mask, "package_cpus_list": list,
		} {
			put(own+"/topology/"+name, text)
		}
		caches, _ := filepath.Glob(from + "/cache/index*")
		for _, cache := range caches {
			at := own + "/cache/" + filepath.Base(cache)
			for _, name := range []string{"level", "type", "size", "coherency_line_size", "number_of_sets", "ways_of_associativity", "id"} {
				copied(at+"/"+name, cache+"/"+name)
			}
			put(at+"/shared_cpu_list", alone)
			put(at+"/shared_cpu_map", only)
		}
		b.symlink("../../node/node0", own+"/node0")
		b.symlink(fmt.Sprintf("../../cpu/cpu%d", i), fmt.Sprintf("%s/node0/cpu%d", node, i))
	}
}

// cpuMask returns n processors from first on as the kernel prints them: hexadecimal, in groups of 32 bits.
func cpuMask(first, n int) string {
	groups := make([]uint32, (first+n+31)/32)
	for i := first; i < first+n; i++ {
		groups[i/32] |= 1 << (i % 32)
	}
	last := len(groups) - 1
	texts := []string{strconv.FormatUint(uint64(groups[last]), 16)}
	for _, group := range slices.Backward(groups[:last]) {
		texts = append(texts, fmt.Sprintf("%08x", group))
	}
	return strings.Join(texts, ",")
}

// processors returns the numbers of the machine's processors that are online; at least one.
func processors() (all []int) {
	text, _ := os.ReadFile(sysCPU + "/online")
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") { // "0-3,7"
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		to := from
		if isRange {
			to, _ = strconv.Atoi(last)
		}
		for i := from; i <= to; i++ {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		all = []int{0}
	}
	slices.Sort(all)
	return all
}
