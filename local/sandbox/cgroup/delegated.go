package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

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
