package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/maker"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// makeSandbox does the same as create, through a maker.
func makeSandbox(c helper.Config, q *helper.Request, trees cgroup.Hierarchies, by *maker.Maker, listener *os.File) (answer helper.Answer, err error) {
	if err := helper.CheckListener(int(listener.Fd())); err != nil {
		return helper.Answer{}, err
	}
	l, err := linkOf(c, q)
	if err != nil {
		return helper.Answer{}, err
	}
	if err := trees.Prepare(filepath.Dir(c.Group(q.ID))); err != nil {
		return helper.Answer{}, finalError{err}
	}
	resolver := ""
	if l != nil {
		resolver = filepath.Join(c.Root, spec.ResolverPath)
	}
	d, err := newDraft(c, q, trees, l, resolver)
	if err != nil {
		return helper.Answer{}, err
	}
	if err := d.makeView(); err != nil {
		return helper.Answer{}, err
	}
	files, err := d.divide(listener)
	for _, f := range files[min(1, len(files)):] { // the caller closes the listener
		defer f.Close()
	}
	if err != nil {
		return helper.Answer{}, err
	}
	// The sandbox's own cgroups have their limits before any process is in them.
	dirs, unified, err := makeGroups(q, d.spec)
	if err != nil {
		return helper.Answer{}, err
	}
	group := c.Group(q.ID)
	spec.ShowGroups(d.spec, trees.OwnMounts(group, dirs)...)
	s := maker.Sandbox{
		ID: q.ID, Spec: d.spec, Files: files, Join: dirs, Group: unified, Settings: namespaceSettings(), Check: d.check,
	}
	pid, err := startOrJoin(s, func() (*os.File, error) { return openImage(c, q, d.spec) }, by.Make)
	if err != nil {
		return helper.Answer{}, err
	}
	if answer, err = answered(pid, d.groups); err != nil {
		return helper.Answer{}, err
	}
	return answer, l.setAddress(q, &answer)
}

// startOrJoin makes a sandbox. If no process starts in its cgroup, another one joins that. Each gets an open
// image of its own, because a mount is used once.
func startOrJoin(s maker.Sandbox, open func() (*os.File, error), attempt func(maker.Sandbox) (int, error)) (pid int, err error) {
	if s.Image, err = open(); err != nil {
		return 0, err
	}
	if s.Image != nil {
		defer s.Image.Close()
	}
	pid, err = attempt(s)
	if !errors.Is(err, maker.ErrUnborn) {
		return pid, err
	}
	s.Join, s.Group = []string{s.Group}, ""
	return startOrJoin(s, open, attempt)
}

// makeGroups makes a sandbox's cgroups with their limits. It returns the directories of version 1,
// or the one of version 2.
func makeGroups(q *helper.Request, s *specs.Spec) (dirs []string, unified string, err error) {
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{CgroupName: q.ID, Spec: s})
	if err != nil {
		return nil, "", fmt.Errorf("convert spec: %w", err)
	}
	m, err := manager.New(config.Cgroups)
	if err != nil {
		return nil, "", fmt.Errorf("prepare cgroups: %w", err)
	}
	// With this pid, Apply makes the cgroups, and moves no process into them.
	const nobody = -1
	if err := m.Apply(nobody); err != nil {
		return nil, "", fmt.Errorf("make cgroups: %w", err)
	}
	if err := m.Set(config.Cgroups.Resources); err != nil {
		return nil, "", fmt.Errorf("set limits: %w", err)
	}
	paths := m.GetPaths()
	if dir, only := paths[""]; only && len(paths) == 1 {
		return nil, dir, nil
	}
	for name, dir := range paths {
		if _, err := os.Stat(dir); strings.HasPrefix(name, "name=") && errors.Is(err, os.ErrNotExist) {
			delete(paths, name) // Apply ignores failures for named hierarchies, which have no limits
		}
	}
	all := slices.Sorted(maps.Values(paths))
	return slices.Compact(all), "", nil
}

// openImage returns the root of the requested image as a detached mount with the sandbox's users as
// owners, or nil if the request has no image.
func openImage(c helper.Config, q *helper.Request, s *specs.Spec) (*os.File, error) {
	if q.Image == "" {
		return nil, nil //nolint:nilnil // no image
	}
	dir, err := openRoot(c, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	tree, err := unix.OpenTree(dir, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("clone the root's mount: %w", err)
	}
	root := os.NewFile(uintptr(tree), "root")
	if err := mapOwnersOf(tree, s, c.Owners); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// namespaceSettings returns the settings of a sandbox's user and network namespaces.
func namespaceSettings() (all []maker.Setting) {
	for _, s := range settings {
		all = append(all, maker.Setting{Name: s.name, Value: s.value})
	}
	return all
}
