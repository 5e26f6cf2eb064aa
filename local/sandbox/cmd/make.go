package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

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
	l, err := begin(c, q, trees)
	if err != nil {
		return helper.Answer{}, err
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
		ID: q.ID, Spec: d.spec, Files: files, Join: dirs, Group: unified, Settings: settings, Check: d.check,
	}
	image := func() (*os.File, error) {
		if q.Image == "" {
			return nil, nil //nolint:nilnil // no image
		}
		return cloneRoot(c, q, d.spec)
	}
	pid, err := startOrJoin(s, image, by.Make)
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
	// With this pid, libcontainer makes the cgroups, and moves no process into them.
	const nobody = -1
	m, err := limit(nobody, q, s)
	if err != nil {
		return nil, "", err
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
