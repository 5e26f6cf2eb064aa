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

// divideUnified makes the groups of a sandbox in the tree of version 2. They
// have no controllers yet: nothing could join the sandbox's own group then, and
// its first process does, from which it sees no group above.
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

// Settle ends what [Hierarchies.Divide] began, as soon as the sandbox's first
// process has joined the group that path names, and before it does anything: it
// goes into a group of its own there, the groups of commands get their limits,
// which are read back, and owner may start processes in them. In version 1
// nothing is left to be done.
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
	for _, pid := range pids {
		if err := os.WriteFile(filepath.Join(dir, Agent, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("move the first process into its group: %w", err)
		}
	}
	if err := errors.Join(control(dir, "cpu", "io"), control(run, "io"), set(filepath.Join(dir, Agent), "cpu.weight", agentWeight, true)); err != nil {
		return err
	}
	if err := errors.Join(set(run, "memory.max", want.Memory, false), set(run, "memory.swap.max", 0, true), set(run, "pids.max", want.Processes, false)); err != nil {
		return err
	}
	if want.CPUQuota > 0 && all.ApartCPU() {
		if err := setText(run, "cpu.max", fmt.Sprintf("%d %d", want.CPUQuota, want.CPUPeriod), false); err != nil {
			return err
		}
	}
	// What starts a process in a group must have the right to do so there, and in
	// the group above that and the own.
	files := []string{filepath.Join(dir, "cgroup.procs")}
	for _, slot := range slots(run) {
		// From Linux 6.11 on refused forks count for the group whose limit it was. So
		// a command that is alone with it meets its own.
		if err := set(slot, "pids.max", want.Processes, false); err != nil {
			return err
		}
		files = append(files, filepath.Join(slot, "cgroup.procs"), filepath.Join(slot, "memory.peak"))
		if filepath.Base(slot) != rest { // one command's alone can be killed as a whole
			files = append(files, filepath.Join(slot, "cgroup.kill"))
		}
	}
	for _, file := range files {
		if err := unix.Chown(file, owner, owner); err != nil && err != unix.ENOENT {
			return &fs.PathError{Op: "chown", Path: file, Err: err}
		}
	}
	return nil
}

func slots(run string) (all []string) {
	for i := range Slots + 1 {
		all = append(all, filepath.Join(run, slotName(i)))
	}
	return all
}

// control has the groups below one counted and limited: for processes and
// memory, and by further controllers where these can be had. Processor time is
// counted always, and is all commands' together to share.
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
		return fmt.Errorf("control the groups below %s: %w", dir, err)
	}
	return nil
}

// agentWeight is the agent's part of the sandbox's processor time beside 100 of all
// commands together. Without a group's part of its own it would have that of one
// process among them, and a bomb of forks keeps it from ending that.
const agentWeight = 1000
