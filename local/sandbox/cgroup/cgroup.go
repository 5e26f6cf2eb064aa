// Package cgroup finds the cgroups of a process, reads limits and counters there, and removes
// cgroups with their processes. It supports version 1, version 2, and a mix of both on one machine.
//
// It never relies on a requested path: what counts is /proc/<pid>/cgroup after the process has
// joined.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// A Hierarchy is one mounted tree of cgroups.
type Hierarchy struct {
	Mount       string   // mount point
	Root        string   // the cgroup that the mount shows as its root
	Controllers []string // version 1: its controllers, also "name=systemd"; version 2: empty
	V2          bool
}

// Hierarchies are all cgroup trees of a machine. Paths of cgroups are relative to the mount.
type Hierarchies []Hierarchy

// Mounted returns the trees that this process sees, and an error if there is none.
func Mounted() (Hierarchies, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("read mountinfo: %w", err)
	}
	var all Hierarchies
	for _, m := range mounts {
		if h := hierarchyOf(m); !all.has(h) {
			all = append(all, h)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no cgroup file system is mounted: mount one at /sys/fs/cgroup")
	}
	return all, nil
}

func hierarchyOf(m *mountinfo.Info) Hierarchy {
	h := Hierarchy{Root: m.Root, Mount: m.Mountpoint, V2: m.FSType == "cgroup2"}
	for _, option := range strings.Split(m.VFSOptions, ",") {
		if !h.V2 && option != "rw" && option != "ro" && !strings.HasPrefix(option, "release_agent=") {
			h.Controllers = append(h.Controllers, option)
		}
	}
	return h
}

// has reports whether the tree is listed already; it may be mounted twice.
func (all Hierarchies) has(h Hierarchy) bool {
	return slices.ContainsFunc(all, func(o Hierarchy) bool {
		return o.V2 == h.V2 && slices.Equal(o.Controllers, h.Controllers)
	})
}

// Controller returns the tree with the controller of that name, and false if there is none.
func (all Hierarchies) Controller(name string) (Hierarchy, bool) {
	for _, h := range all {
		if !h.V2 && slices.Contains(h.Controllers, name) {
			return h, true
		}
	}
	for _, h := range all {
		if h.V2 && h.enables(name) {
			return h, true
		}
	}
	return Hierarchy{}, false
}

// enables reports whether a version 2 tree has this controller at its root.
func (h Hierarchy) enables(name string) bool {
	text, err := os.ReadFile(filepath.Join(h.Mount, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(text)), name)
}

// dir returns the directory of a cgroup, given the path that the kernel reports, or false if the mount
// doesn't show it.
func (h Hierarchy) dir(path string) (string, bool) {
	if path == "" || strings.HasPrefix(path, "/..") {
		return "", false
	}
	rel, err := filepath.Rel(h.Root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	return filepath.Join(h.Mount, rel), true
}

// shownControllers are those whose cgroups a sandbox sees: runtimes of languages read their limits.
var shownControllers = []string{"memory", "cpu", "cpuacct", "cpuset", "pids"}

// Shown returns the trees of version 1 whose cgroups a sandbox sees, as mount options such as
// "cpu,cpuacct". In version 2 it returns nil: there the only tree is shown.
func (all Hierarchies) Shown() (trees []string) {
	if all.Unified() {
		return nil
	}
	for _, h := range all {
		if !h.V2 && slices.ContainsFunc(h.Controllers, func(name string) bool { return slices.Contains(shownControllers, name) }) {
			trees = append(trees, h.options())
		}
	}
	return trees
}

// options returns the controllers of a tree of version 1 as mount options.
func (h Hierarchy) options() string {
	others := []string{"xattr", "noprefix", "clone_children", "cpuset_v2_mode", "favordynmods"} // they don't select a tree
	return strings.Join(slices.DeleteFunc(slices.Clone(h.Controllers), func(name string) bool { return slices.Contains(others, name) }), ",")
}

// Unified reports whether sandboxes' cgroups are in a version 2 tree.
func (all Hierarchies) Unified() bool { _, ok := all.unified(); return ok }

// OwnMounts returns the mounts with which a process sees its own cgroups, by
// their options: "" for version 2. The process must have joined the cgroup path in each of dirs, and
// its cgroup namespace must begin there. Other trees aren't included: they would show cgroups of the
// machine.
func (all Hierarchies) OwnMounts(path string, dirs []string) (options []string) {
	if all.Unified() {
		return []string{""}
	}
	shown := all.Shown()
	for _, h := range all {
		if !h.V2 && slices.Contains(shown, h.options()) && slices.Contains(dirs, filepath.Join(h.Mount, path)) {
			options = append(options, h.options())
		}
	}
	return options
}

var limiting = []string{"memory", "pids", "cpu"}

// readable is the mode that lets every user read a cgroup. The kernel's root cgroup has it, too.
const readable = 0o755

// prepareTries bounds how often Prepare starts over because another server removed a cgroup
// meanwhile.
const prepareTries = 100

// exists reports whether a path exists. If that can't be determined, for example because a
// directory may not be searched, it returns an error.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Exists reports whether the cgroup exists in any tree.
func (all Hierarchies) Exists(path string) (bool, error) {
	for _, h := range all {
		if there, err := exists(filepath.Join(h.Mount, path)); err != nil || there {
			return there, err
		}
	}
	return false, nil
}

// Prepare makes a cgroup in each tree that limits sandboxes. Every user may read it and the cgroups
// above it, whatever the umask of this process or of their maker was, because a server that isn't
// root reads counters there.
func (all Hierarchies) Prepare(path string) error {
	for _, controller := range limiting {
		h, ok := all.Controller(controller)
		if !ok {
			continue
		}
		if err := h.Prepare(path); err != nil {
			return fmt.Errorf("prepare the %s cgroup %s: %w", controller, path, err)
		}
	}
	return nil
}

// Prepare makes a cgroup in this tree, as [Hierarchies.Prepare] does.
func (h Hierarchy) Prepare(path string) error {
	err := h.prepare(path)
	// Another server that ends may remove empty cgroups between two steps.
	for tries := 0; errors.Is(err, fs.ErrNotExist) && tries < prepareTries; tries++ {
		err = h.prepare(path)
	}
	return err
}

// prepare makes the cgroup and those above it, and adds missing permissions.
func (h Hierarchy) prepare(path string) error {
	at := h.Mount
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		at = filepath.Join(at, name)
		if err := os.Mkdir(at, readable); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&readable == readable {
			continue
		}
		if err := os.Chmod(at, info.Mode()|readable); err != nil {
			return err
		}
	}
	return nil
}

// Readable returns an error, with the path, if this process can't search a cgroup, as it must to
// read those below. A missing cgroup counts as readable.
func (all Hierarchies) Readable(path string) error {
	for _, controller := range limiting {
		h, ok := all.Controller(controller)
		if !ok {
			continue
		}
		if _, err := exists(filepath.Join(h.Mount, path, "cgroup.procs")); err != nil {
			return err
		}
	}
	return nil
}

// serverGroup is the cgroup that a process moves to from its delegated cgroup: in version 2, a
// cgroup with limited children can't contain processes.
const serverGroup = "rockpool-server"

// Delegated returns the part of the version 2 tree in which this process, run by an ordinary user,
// may make cgroups and move itself and its children. It begins at the topmost cgroup that systemd
// or somebody else delegated to the user. Paths of the result are relative to that cgroup; base is
// its path.
func Delegated() (all Hierarchies, base string, err error) {
	h, own, err := ownUnified()
	if err != nil {
		return nil, "", err
	}
	for at := own; mayControl(filepath.Join(h.Mount, at)); at = filepath.Dir(at) {
		base = at
		if at == "/" {
			break
		}
	}
	if base == "" {
		return nil, "", fmt.Errorf("the cgroup %s isn't delegated to this user", own)
	}
	all, err = Below(base)
	return all, base, err
}

// Below returns the part of the version 2 tree below the cgroup base. If this process is in base
// itself, it moves to serverGroup.
func Below(base string) (Hierarchies, error) {
	h, own, err := ownUnified()
	if err != nil {
		return nil, err
	}
	part := Hierarchy{V2: true, Mount: filepath.Join(h.Mount, base), Root: base}
	if own != base {
		return Hierarchies{part}, nil
	}
	leaf := filepath.Join(part.Mount, serverGroup)
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
		return nil, fmt.Errorf("leave the delegated cgroup %s: %w", base, err)
	}
	return Hierarchies{part}, nil
}

// ownUnified returns the version 2 tree, and this process's cgroup there.
func ownUnified() (Hierarchy, string, error) {
	all, err := Mounted()
	if err != nil {
		return Hierarchy{}, "", err
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Hierarchy{}, "", err
	}
	for _, h := range all {
		for line := range strings.Lines(string(text)) {
			path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
			if ok && h.V2 && h.Root == "/" && !strings.HasPrefix(path, "/..") {
				return h, path, nil
			}
		}
	}
	return Hierarchy{}, "", errors.New("the machine has no cgroup tree of version 2 that shows this process")
}

func mayControl(dir string) bool {
	for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if unix.Access(filepath.Join(dir, file), unix.W_OK) != nil {
			return false
		}
	}
	return true
}

// The limits that can be missing.
const (
	LimitMemory    = "memory"
	LimitProcesses = "processes"
	LimitCPU       = "processor time"
)

// Lacks returns the limits that can't be set here.
func (all Hierarchies) Lacks() (lacks []string) {
	for _, limit := range []struct{ controller, name string }{{"memory", LimitMemory}, {"pids", LimitProcesses}, {"cpu", LimitCPU}} {
		if _, ok := all.Controller(limit.controller); !ok {
			lacks = append(lacks, limit.name)
		}
	}
	return lacks
}
