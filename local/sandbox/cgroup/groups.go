package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// Limits are what a process may use. One is 0 if it isn't set, because the machine can't and that was accepted.
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
	for _, c := range []struct {
		controller string
		group      *Group
	}{{"memory", &g.Memory}, {"pids", &g.Processes}, {"cpu", &g.CPU}, {"cpuacct", &g.Account}} {
		if *c.group, err = find(c.controller); err != nil {
			return Groups{}, err
		}
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
	return g, g.verify(want)
}

// verify returns an error unless the kernel has exactly these limits.
func (g Groups) verify(want Limits) error {
	for _, c := range g.checks(want) {
		if c.group.Dir == "" {
			return fmt.Errorf("no cgroup tree has %s", c.file)
		}
		got, err := readFile(filepath.Join(c.group.Dir, c.file))
		if os.IsNotExist(err) && c.optional {
			continue
		}
		if err != nil {
			return err
		}
		if value := strings.TrimSpace(string(got)); value != c.want {
			return fmt.Errorf("%s is %q, not %q", filepath.Join(c.group.Dir, c.file), value, c.want)
		}
	}
	return nil
}

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
