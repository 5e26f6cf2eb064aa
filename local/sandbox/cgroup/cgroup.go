// Package cgroup finds the cgroups of a process, reads limits and counters there, and removes
// cgroups with their processes. It supports version 1, version 2, and a mix of both on one machine.
//
// It never relies on a requested path: what counts is /proc/<pid>/cgroup after the process has
// joined.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all Hierarchies
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if h, ok := parseMount(lines.Text()); ok && !all.has(h) {
			all = append(all, h)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mountinfo: %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("no cgroup file system is mounted: mount one at /sys/fs/cgroup")
	}
	return all, nil
}

// parseMount reads one line of mountinfo (proc_pid_mountinfo(5)):
// "id parent major:minor root mount options… - type source super-options".
func parseMount(line string) (Hierarchy, bool) {
	before, after, found := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if !found || len(left) < 6 || len(right) < 3 {
		return Hierarchy{}, false
	}
	h := Hierarchy{Root: left[3], Mount: left[4], V2: right[0] == "cgroup2"}
	if h.V2 {
		return h, true
	}
	if right[0] != "cgroup" {
		return Hierarchy{}, false
	}
	for _, option := range strings.Split(right[2], ",") {
		if option != "rw" && option != "ro" && !strings.HasPrefix(option, "release_agent=") {
			h.Controllers = append(h.Controllers, option)
		}
	}
	return h, true
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

// dir returns the directory of a cgroup, given the path that the kernel reports; false: the mount
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
