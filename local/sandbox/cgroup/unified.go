package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// divideUnified makes the cgroups of a sandbox in the version 2 tree. They get no controllers yet:
// with them, no process could join the sandbox's own cgroup. The first process joins that one, so
// that it sees no cgroup above.
func divideUnified(dir string) (Part, error) {
	run := filepath.Join(dir, Commands)
	for _, at := range append(slots(run), filepath.Join(dir, Agent)) {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return Part{}, err
		}
	}
	f, err := openPart(run)
	return Part{Controller: Unified, Dir: f}, err
}

// Settle completes [Hierarchies.Divide] after the sandbox's first process has joined the cgroup,
// and before that process does anything. It moves the process to the agent's cgroup, sets and reads
// back the limits of commands' cgroups, and lets the user owner start processes there. In version 1
// it does nothing.
func (all Hierarchies) Settle(path string, owner int, want Limits) error {
	h, ok := all.unified()
	if !ok {
		return nil
	}
	dir := filepath.Join(h.Mount, path)
	run := filepath.Join(dir, Commands)
	pids, err := Processes(dir)
	if err != nil {
		return err
	}
	// A cgroup with processes can't enable controllers for those below (cgroups(7)), so the process
	// leaves first.
	for _, pid := range pids {
		if err := os.WriteFile(filepath.Join(dir, Agent, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("move the first process into its cgroup: %w", err)
		}
	}
	if err := errors.Join(control(dir, "cpu", "io"), control(run, "io", "cpu"), set(filepath.Join(dir, Agent), "cpu.weight", agentWeight, true)); err != nil {
		return err
	}
	if err := errors.Join(set(run, "memory.max", want.Memory, false), set(run, "memory.swap.max", 0, true), set(run, "pids.max", want.Processes, false)); err != nil {
		return err
	}
	limited := []string{} // the cgroups that have the limit of CPU time
	if want.CPUQuota > 0 && all.SeparateCPU() {
		limited = append(slots(run), run)
	}
	for _, dir := range limited {
		if err := setText(dir, "cpu.max", fmt.Sprintf("%d %d", want.CPUQuota, want.CPUPeriod), false); err != nil {
			return err
		}
	}
	// To start a process in a cgroup, the agent needs permission there and in the common ancestor.
	// That is run for a preloaded interpreter, which moves from one slot to another.
	files := []string{filepath.Join(dir, "cgroup.procs"), filepath.Join(run, "cgroup.procs")}
	for _, slot := range slots(run) {
		// From Linux 6.11 on a refused fork counts for the cgroup whose limit it hit. So each slot
		// has the limit, too, and a single command hits its own.
		// Runtimes of languages read only their own cgroup's limits.
		if err := errors.Join(set(slot, "pids.max", want.Processes, false), set(slot, "memory.max", want.Memory, false)); err != nil {
			return err
		}
		files = append(files, filepath.Join(slot, "cgroup.procs"), filepath.Join(slot, "memory.peak"))
		if filepath.Base(slot) != rest { // a slot of one command can be frozen, to kill all in it
			files = append(files, filepath.Join(slot, "cgroup.freeze"), filepath.Join(slot, "pids.max"))
		}
	}
	for _, file := range files {
		if err := unix.Chown(file, owner, owner); err != nil && err != unix.ENOENT {
			return &fs.PathError{Op: "chown", Path: file, Err: err}
		}
	}
	return nil
}

// slots returns the directories of all slots below run, with rest as the last.
func slots(run string) (all []string) {
	for i := range Slots + 1 {
		all = append(all, filepath.Join(run, slotName(i)))
	}
	return all
}

// control enables controllers for the cgroups below dir: processes and memory, and those of more
// that are available. CPU time is always counted.
func control(dir string, more ...string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	wanted := []string{"+pids", "+memory"}
	for _, name := range more {
		if slices.Contains(strings.Fields(string(has)), name) {
			wanted = append(wanted, "+"+name)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(strings.Join(wanted, " ")), 0); err != nil {
		return fmt.Errorf("enable controllers for the cgroups below %s: %w", dir, err)
	}
	return nil
}

// agentWeight is the agent's weight for CPU time, against 100 of all commands together. Without it
// the agent would get the share of one process among them, and a fork bomb could keep it from
// ending that.
const agentWeight = 1000
