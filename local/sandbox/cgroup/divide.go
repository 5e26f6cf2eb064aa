package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
