// Package usage reads the CPU time and the memory of processes and cgroups, as the kernel counts
// them.
package usage

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU returns the CPU time of a process in nanoseconds, including threads that have ended.
func ProcessCPU(pid int) (time.Duration, bool) {
	const scheduled = 2 // CPUCLOCK_SCHED of the kernel's posix-timers.h
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduled, &at); err != nil {
		return 0, false
	}
	return time.Duration(at.Nano()), true
}

// ChildrenCPU returns the CPU time of the children that a process has waited for, in steps of 10
// ms.
func ChildrenCPU(pid int) time.Duration {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// The second field is a name in parentheses. The two wanted are fields 16 and 17.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return 0
	}
	user, _ := strconv.Atoi(fields[13])
	system, _ := strconv.Atoi(fields[14])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 wherever Go runs
}

// MachineCPU returns the time that all CPUs of the machine were busy since it started, in steps of
// 10 ms.
func MachineCPU() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal guest guest_nice; guests are in user
	busy := 0
	for i, field := range fields {
		if i == 1 || i == 2 || i == 3 || i == 6 || i == 7 {
			n, _ := strconv.Atoi(field)
			busy += n
		}
	}
	return time.Duration(busy) * 10 * time.Millisecond
}

// HelpersCPU returns the CPU time of a process's running children, except those in a cgroup or
// below it. It leaves out the maker's own children: they are first processes of runners, and their
// cgroup counts their time from when they join it.
func HelpersCPU(pid int, group string) (all time.Duration) {
	lists, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/children"))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				continue
			}
			groups, _ := os.ReadFile(filepath.Join("/proc", field, "cgroup"))
			if group != "" && strings.Contains(string(groups), "/"+group) {
				continue
			}
			own, _ := ProcessCPU(child)
			all += own
		}
	}
	return all
}

// GroupCPU returns the CPU time of all processes that were in a cgroup or below it.
func GroupCPU(group string) time.Duration {
	if matches, _ := filepath.Glob("/sys/fs/cgroup/*/" + group + "/cpuacct.usage"); len(matches) > 0 {
		text, _ := os.ReadFile(matches[0])
		nanos, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return time.Duration(nanos)
	}
	text, _ := os.ReadFile("/sys/fs/cgroup/" + group + "/cpu.stat")
	for line := range strings.Lines(string(text)) {
		if micros, ok := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); ok {
			n, _ := strconv.ParseInt(micros, 10, 64)
			return time.Duration(n) * time.Microsecond
		}
	}
	return 0
}

// Private returns the memory that a process shares with no other, in bytes.
func Private(pid int) int64 {
	file := filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup")
	return kilobytes(file, "Private_Clean") + kilobytes(file, "Private_Dirty")
}

// kilobytes reads a line "name: N kB" and returns bytes.
func kilobytes(file, name string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(Field(file, name), "kB")), 10, 64)
	return n << 10
}

// Inside returns the processes in the runners below a cgroup.
func Inside(group string) []int {
	files, _ := filepath.Glob("/sys/fs/cgroup/pids/" + group + "/*/cgroup.procs")
	if len(files) == 0 {
		files, _ = filepath.Glob("/sys/fs/cgroup/" + group + "/*/cgroup.procs")
		agents, _ := filepath.Glob("/sys/fs/cgroup/" + group + "/*/agent/cgroup.procs")
		files = append(files, agents...)
	}
	var all []int
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, line := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(line); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}

// Peak returns the peak of a process's resident memory, in bytes.
func Peak(pid int) int64 {
	return kilobytes(filepath.Join("/proc", strconv.Itoa(pid), "status"), "VmHWM")
}

// Field returns the value of the first line "name: value" of a file in /proc, or "".
func Field(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
