package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Group is a cgroup's directory in one tree.
type Group struct {
	Dir string `json:"dir"`
	V2  bool   `json:"v2,omitempty"`
}

// Groups are the cgroups that limit one process.
type Groups struct {
	Memory    Group `json:"memory"`
	Processes Group `json:"processes"`
	CPU       Group `json:"cpu"`
	Account   Group `json:"account,omitzero"` // version 1: counts CPU time; version 2 counts it in CPU
}

// Limits are what a process may use. 0: not set, because the machine can't and that was accepted.
type Limits struct {
	Memory    int64 // bytes; no swap
	Processes int64 // number, including threads
	CPUQuota  int64 // microseconds of CPU time per CPUPeriod
	CPUPeriod int64 // microseconds
}

// Of returns the cgroups of a process, from /proc/<pid>/cgroup. For an agent in a divided cgroup of
// version 2 it returns the divided cgroup, which limits all of the sandbox. A missing controller
// gives an empty Group.
func (all Hierarchies) Of(pid int) (Groups, error) {
	text, err := readFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return Groups{}, err
	}
	return all.of(pid, string(text))
}

// of is Of for a process whose /proc/<pid>/cgroup contains text.
func (all Hierarchies) of(pid int, text string) (g Groups, err error) {
	paths := map[string]string{} // by controller; "" is version 2
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			return Groups{}, fmt.Errorf("process %d: unknown line %q in its cgroup file", pid, line)
		}
		for _, controller := range strings.Split(fields[1], ",") {
			paths[controller] = fields[2]
		}
	}
	find := func(controller string) (Group, error) {
		h, ok := all.Controller(controller)
		if !ok {
			return Group{}, nil
		}
		key := controller
		if h.V2 {
			key = ""
		}
		dir, ok := h.dir(paths[key])
		if !ok {
			return Group{}, fmt.Errorf("process %d: its %s cgroup %q isn't visible below %s", pid, controller, paths[key], h.Mount)
		}
		if !h.V2 || filepath.Base(dir) != Agent {
			return Group{Dir: dir, V2: h.V2}, nil
		}
		divided, err := exists(filepath.Join(filepath.Dir(dir), Commands))
		if err != nil {
			return Group{}, fmt.Errorf("process %d: read its cgroup: %w", pid, err)
		}
		if divided {
			dir = filepath.Dir(dir)
		}
		return Group{Dir: dir, V2: true}, nil
	}
	if g.Memory, err = find("memory"); err != nil {
		return Groups{}, err
	}
	if g.Processes, err = find("pids"); err != nil {
		return Groups{}, err
	}
	if g.CPU, err = find("cpu"); err != nil {
		return Groups{}, err
	}
	if g.Account, err = find("cpuacct"); err != nil {
		return Groups{}, err
	}
	return g, nil
}

// Member returns a process's cgroups. It returns an error unless the process is in the cgroup path
// in each tree that limits it.
func (all Hierarchies) Member(pid int, path string) (Groups, error) {
	g, err := all.Of(pid)
	if err != nil {
		return Groups{}, err
	}
	for controller, group := range map[string]Group{"memory": g.Memory, "pids": g.Processes, "cpu": g.CPU} {
		h, ok := all.Controller(controller)
		if !ok {
			continue
		}
		if expected := filepath.Join(h.Mount, path); group.Dir != expected {
			return Groups{}, fmt.Errorf("process %d is in %s, not in %s", pid, group.Dir, expected)
		}
	}
	return g, nil
}

// Check returns an error unless a process is in the cgroup path in each tree that limits it, and
// the kernel has exactly these limits there.
func (all Hierarchies) Check(pid int, path string, want Limits) (Groups, error) {
	g, err := all.Member(pid, path)
	if err != nil {
		return Groups{}, err
	}
	for _, c := range g.checks(want) {
		if c.group.Dir == "" {
			return Groups{}, fmt.Errorf("no cgroup tree has %s", c.file)
		}
		got, err := readFile(filepath.Join(c.group.Dir, c.file))
		if os.IsNotExist(err) && c.optional {
			continue
		}
		if err != nil {
			return Groups{}, err
		}
		if value := strings.TrimSpace(string(got)); value != c.want {
			return Groups{}, fmt.Errorf("%s is %q, not %q", filepath.Join(c.group.Dir, c.file), value, c.want)
		}
	}
	return g, nil
}

// A check is the value that a cgroup's file must have.
type check struct {
	group    Group
	file     string
	want     string
	optional bool // swap isn't accounted on every kernel
}

// checks returns the checks for limits; a limit of 0 isn't checked.
func (g Groups) checks(want Limits) (checks []check) {
	memory := strconv.FormatInt(want.Memory, 10)
	if want.Processes != 0 {
		checks = append(checks, check{group: g.Processes, file: "pids.max", want: strconv.FormatInt(want.Processes, 10)})
	}
	switch {
	case want.Memory == 0:
	case g.Memory.V2:
		checks = append(checks,
			check{group: g.Memory, file: "memory.max", want: memory},
			check{group: g.Memory, file: "memory.swap.max", want: "0", optional: true})
	default:
		checks = append(checks,
			check{group: g.Memory, file: "memory.limit_in_bytes", want: memory},
			// It counts memory and swap together, so the same limit leaves no swap.
			check{group: g.Memory, file: "memory.memsw.limit_in_bytes", want: memory, optional: true})
	}
	if want.CPUQuota == 0 {
		return checks
	}
	if g.CPU.V2 {
		return append(checks, check{group: g.CPU, file: "cpu.max", want: fmt.Sprintf("%d %d", want.CPUQuota, want.CPUPeriod)})
	}
	return append(checks,
		check{group: g.CPU, file: "cpu.cfs_quota_us", want: strconv.FormatInt(want.CPUQuota, 10)},
		check{group: g.CPU, file: "cpu.cfs_period_us", want: strconv.FormatInt(want.CPUPeriod, 10)})
}

// Counts returns how many processes the kernel killed for memory in these cgroups and those of
// commands below, and how many forks it refused, since they were made. Missing controllers count 0.
func (g Groups) Counts() (oomKills, processLimitHits int64, err error) {
	kills, hits, err := g.counted()
	if err != nil {
		return 0, 0, err
	}
	if oomKills, err = sum(kills, killKey); err == nil {
		processLimitHits, err = sum(hits, hitKey)
	}
	return oomKills, processLimitHits, err
}

// used returns the file that counts the CPU time of the cgroup and those below; "": there is none.
func (g Groups) used() string {
	switch {
	case g.Account.Dir != "":
		return filepath.Join(g.Account.Dir, "cpuacct.usage")
	case g.CPU.V2:
		return filepath.Join(g.CPU.Dir, "cpu.stat")
	}
	return ""
}

// usedIn returns the CPU time in the text of that file; 0: there is none.
func usedIn(text []byte) time.Duration {
	if rest, ok := bytes.CutPrefix(text, []byte("usage_usec ")); ok { // cpu.stat begins with it
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		n, _ := strconv.ParseInt(string(line), 10, 64)
		return time.Duration(n) * time.Microsecond
	}
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return time.Duration(n)
}

// Keys of lines in the counting files.
const (
	killKey = "oom_kill"
	hitKey  = "max"
)

// counted returns the files that count OOM kills and refused forks.
func (g Groups) counted() (kills, hits []string, err error) {
	memory, err := g.Memory.parts()
	if err != nil {
		return nil, nil, err
	}
	processes, err := g.Processes.parts()
	if err != nil {
		return nil, nil, err
	}
	file := "memory.oom_control" // counts kills in this cgroup only
	if g.Memory.V2 {
		file, memory = "memory.events", memory[:1] // includes the cgroups below
	}
	inherited, err := exists(filepath.Join(g.Processes.Dir, "pids.events.local"))
	if err != nil {
		return nil, nil, err
	}
	if inherited {
		processes = processes[:1] // from Linux 6.11 on it includes the cgroups below
	}
	return filesIn(memory, file), filesIn(processes, "pids.events"), nil
}

// filesIn returns the paths of a file in each of the directories.
func filesIn(dirs []string, file string) (paths []string) {
	for _, dir := range dirs {
		if dir != "" { // "": the controller is missing
			paths = append(paths, filepath.Join(dir, file))
		}
	}
	return paths
}

func sum(paths []string, key string) (all int64, err error) {
	for _, path := range paths {
		n, err := value(path, key)
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

// countSize is larger than any counting file.
const countSize = 512

// value returns the number after key in a file of "key number" lines.
func value(file, key string) (int64, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: file, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var text [countSize]byte
	n, err := unix.Read(fd, text[:])
	if err != nil {
		return 0, &os.PathError{Op: "read", Path: file, Err: err}
	}
	return lineOf(file, text[:n], key)
}

// lineOf returns the number after key in the text of such a file.
func lineOf(file string, text []byte, key string) (int64, error) {
	for line := range strings.Lines(string(text)) {
		if name, number, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok && name == key {
			return strconv.ParseInt(number, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no line %q", file, key)
}
