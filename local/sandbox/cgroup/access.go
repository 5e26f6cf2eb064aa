package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

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
