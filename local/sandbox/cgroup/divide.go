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

// A sandbox's cgroup can be divided: the agent is separate from the commands that it starts. These
// are in cgroups below, one for each command as long as there is a free one. So the kernel counts
// for each command. The commands together may use less than the sandbox, which leaves room for the
// agent.
//
//	ID              version 1: the agent; in version 2 such a cgroup can't have processes
//	ID/agent        version 2: the agent
//	ID/run          the limits of all commands together
//	ID/run/x0, x1    one command at a time each
//	ID/run/rest     commands that found all of these in use, and commands of root
const (
	Agent    = "agent"
	Commands = "run"
	rest     = "rest"
)

// Slots is how many concurrent commands have a cgroup each.
const Slots = 2

// Unified is the Controller of a [Part] of version 2, whose tree has all controllers.
const Unified = "unified"

// partControllers count for commands; the first two are required.
var partControllers = []string{"pids", "memory", "cpuacct", "blkio"}

// Divisible returns why sandboxes' cgroups can't be divided here, nil if they can.
func (all Hierarchies) Divisible() error {
	versions := map[bool]bool{}
	for _, name := range partControllers[:2] {
		h, ok := all.Controller(name)
		if !ok {
			return fmt.Errorf("no cgroup tree controls %s", name)
		}
		versions[h.V2] = true
	}
	if len(versions) > 1 {
		return errors.New("memory and processes are controlled by different versions of cgroups")
	}
	return nil
}

// Launchers returns how many threads of the agent can be in the cgroups of commands, where they
// count as processes: one in each, and one more for root's commands. In version 2 it is 0: a thread
// can't be in another cgroup than its process.
func (all Hierarchies) Launchers() int64 {
	if _, ok := all.unified(); ok {
		return 0
	}
	return Slots + 2
}

// SeparateCPU reports whether the commands' CPU time can be limited separately from the agent's: in
// version 2.
func (all Hierarchies) SeparateCPU() bool {
	_, unified := all.unified()
	h, ok := all.Controller("cpu")
	return unified && ok && h.V2
}

// unified returns the version 2 tree if sandboxes' cgroups are divided there.
func (all Hierarchies) unified() (Hierarchy, bool) {
	h, ok := all.Controller(partControllers[0])
	return h, ok && h.V2
}

// A Part is the directory of commands' cgroups in one tree. Nothing above it can be reached through
// Dir.
type Part struct {
	Controller string
	Dir        *os.File
}

// Divide makes the cgroups of commands below a cgroup, which needn't exist yet. It limits their
// memory and processes together, reads that back, and lets the user owner move threads there. The
// caller closes the parts. In version 2 the cgroups have no limits before [Hierarchies.Settle].
func (all Hierarchies) Divide(path string, owner int, want Limits) (parts []Part, err error) {
	defer func() {
		if err != nil {
			for _, p := range parts {
				_ = p.Dir.Close()
			}
		}
	}()
	if err := all.Divisible(); err != nil {
		return nil, err
	}
	if h, ok := all.unified(); ok {
		part, err := divideUnified(filepath.Join(h.Mount, path))
		return []Part{part}, err
	}
	own := want // of a single command: one of the agent's threads is in its group
	own.Processes -= all.Launchers() - 1
	for _, name := range partControllers {
		h, ok := all.Controller(name)
		if !ok || h.V2 {
			continue
		}
		dir := filepath.Join(h.Mount, path, Commands)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return parts, err
		}
		if err := limitPart(name, dir, want); err != nil {
			return parts, err
		}
		for i := range Slots + 1 {
			if err := makeSlot(filepath.Join(dir, slotName(i)), owner, own); err != nil {
				return parts, err
			}
		}
		f, err := openPart(dir)
		if err != nil {
			return parts, err
		}
		parts = append(parts, Part{Controller: name, Dir: f})
	}
	return parts, nil
}

// openPart opens a directory as a detached mount of its own, so that ".." leads nowhere: a process
// that inherits the descriptor reaches only the cgroups below. Otherwise ".." would lead to the
// tree's root, with the names and counters of all cgroups of the machine.
func openPart(dir string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// slotName returns the name of a slot's cgroup. The slot with the number Slots is rest.
func slotName(i int) string {
	if i == Slots {
		return rest
	}
	return "x" + strconv.Itoa(i)
}

// makeSlot makes a cgroup that owner's threads may join. Its other files stay root's, except those
// that reset the peak of memory, and that limit the processes of one command. It shows the limits of
// all commands, because runtimes of languages read only their own cgroup's.
func makeSlot(dir string, owner int, want Limits) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	err := set(dir, "memory.limit_in_bytes", want.Memory, true)
	if want.CPUQuota > 0 {
		err = errors.Join(err, set(dir, "cpu.cfs_period_us", want.CPUPeriod, true), set(dir, "cpu.cfs_quota_us", want.CPUQuota, true))
	}
	if err != nil {
		return err
	}
	files := []string{"tasks", "memory.max_usage_in_bytes"}
	if filepath.Base(dir) != rest { // the agent limits a single command there
		files = append(files, "pids.max")
		if err := set(dir, "pids.max", want.Processes, true); err != nil {
			return err
		}
	}
	for _, file := range files {
		if err := unix.Chown(filepath.Join(dir, file), owner, owner); err != nil && err != unix.ENOENT {
			return fmt.Errorf("chown %s in %s: %w", file, dir, err)
		}
	}
	return nil
}

func limitPart(controller, dir string, want Limits) error {
	switch controller {
	case "pids":
		return set(dir, "pids.max", want.Processes, false)
	case "memory":
		// Before Linux 5.11 a cgroup's memory could be counted separately from its parent's.
		if text, err := readFile(filepath.Join(dir, "memory.use_hierarchy")); err == nil && strings.TrimSpace(string(text)) != "1" {
			return errors.New("memory isn't counted hierarchically: boot Linux 5.11 or later")
		}
		return errors.Join(set(dir, "memory.limit_in_bytes", want.Memory, false), set(dir, "memory.memsw.limit_in_bytes", want.Memory, true))
	}
	return nil
}

// set writes a number to a cgroup's file, and reads it back. If optional, the file may be missing.
func set(dir, file string, value int64, optional bool) error {
	return setText(dir, file, strconv.FormatInt(value, 10), optional)
}

// setText writes a text to a cgroup's file, and returns an error unless the file then contains
// exactly that.
func setText(dir, file, text string, optional bool) error {
	at := filepath.Join(dir, file)
	got, err := exchange(at, text)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if strings.TrimSpace(got) != text {
		return fmt.Errorf("%s is %q, not %s", at, got, text)
	}
	return nil
}

// parts returns the cgroup and, if it is divided, those below that can have processes.
func (g Group) parts() ([]string, error) {
	all := []string{g.Dir}
	if g.Dir == "" {
		return all, nil
	}
	below := filepath.Join(g.Dir, Commands)
	divided, err := exists(below)
	if err != nil || !divided {
		return all, err
	}
	if g.V2 {
		all = append(all, filepath.Join(g.Dir, Agent), below)
	}
	return append(all, slots(below)...), nil
}

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
