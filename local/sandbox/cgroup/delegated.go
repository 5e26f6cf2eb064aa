package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// serverGroup is where a process goes that is in the group delegated to it: on
// version 2 there can be no processes beside groups that are limited.
const serverGroup = "rockpool-server"

// Delegated returns the part of the tree of version 2 in which this process, of
// an ordinary user, may make groups, and move itself and its children: the
// topmost group that systemd or somebody else has made over to it. All paths
// count from there, and Base names it.
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
		return nil, "", fmt.Errorf("the control group %s isn't this user's", own)
	}
	all, err = Below(base)
	return all, base, err
}

// Below returns the part of the tree of version 2 that begins with the group that
// base names.
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
		return nil, fmt.Errorf("leave the delegated group %s: %w", base, err)
	}
	return Hierarchies{part}, nil
}

// ownUnified returns the tree of version 2, and this process's group there.
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
	return Hierarchy{}, "", errors.New("the machine has no tree of version 2 of cgroups in which this process can be seen")
}

// mayControl reports whether this process may do in a group what its owner may.
func mayControl(dir string) bool {
	for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if unix.Access(filepath.Join(dir, file), unix.W_OK) != nil {
			return false
		}
	}
	return true
}

// What can be limited.
const (
	LimitMemory    = "memory"
	LimitProcesses = "processes"
	LimitCPU       = "processor time"
)

// Lacks returns which limits can't be set here.
func (all Hierarchies) Lacks() (lacks []string) {
	for _, limit := range []struct{ controller, name string }{{"memory", LimitMemory}, {"pids", LimitProcesses}, {"cpu", LimitCPU}} {
		if _, ok := all.Controller(limit.controller); !ok {
			lacks = append(lacks, limit.name)
		}
	}
	return lacks
}
