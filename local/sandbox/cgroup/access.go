package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// limiting are the controllers whose trees limit sandboxes.
var limiting = []string{"memory", "pids", "cpu"}

// readable are the permissions that let every user read a group: those that the
// kernel's own root group has.
const readable = 0o755

// prepareTries is how often Prepare starts over: other servers end so often at most.
const prepareTries = 100

// exists reports whether a path is there. Any answer other than yes and no is an
// error: a directory that may not be searched says nothing about what is in it.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Exists reports whether there is a group that path names in any tree.
func (all Hierarchies) Exists(path string) (bool, error) {
	for _, h := range all {
		if there, err := exists(filepath.Join(h.Mount, path)); err != nil || there {
			return there, err
		}
	}
	return false, nil
}

// Prepare makes the group that path names, in each tree that limits sandboxes.
// Every user may read it and the groups above it, whatever the umask was, of this
// process or of the one that made them: a server that isn't root reads there what
// the kernel counted.
func (all Hierarchies) Prepare(path string) error {
	for _, controller := range limiting {
		h, ok := all.Controller(controller)
		if !ok {
			continue
		}
		if err := h.Prepare(path); err != nil {
			return fmt.Errorf("prepare the %s group %s: %w", controller, path, err)
		}
	}
	return nil
}

// Prepare makes the group that path names in this tree, as [Hierarchies.Prepare] does.
func (h Hierarchy) Prepare(path string) error {
	err := h.prepare(path)
	// Another server that ends removes groups that are empty, between two steps of ours.
	for tries := 0; errors.Is(err, fs.ErrNotExist) && tries < prepareTries; tries++ {
		err = h.prepare(path)
	}
	return err
}

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

// Readable returns an error, with the path, where this process can't look into the
// group that path names, as it must for the groups below. One that isn't there is
// readable.
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
