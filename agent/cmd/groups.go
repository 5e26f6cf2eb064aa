package main

import (
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Names of the groups, which whoever made the runner has made.
const (
	ownGroups  = 2 // x0 …
	restGroups = "rest"
)

// unifiedGroups is what --groups says where the groups are of version 2.
const unifiedGroups = "unified"

// Groups are the control groups of commands, each one in every tree. A command
// has one of its own as long as there are any free, so that the kernel counts for
// it alone; the rest share one. It is there from its first instruction on.
type groups struct {
	// open opens a group. In version 1 that has a thread join it (threads.go), so a
	// group is opened when it is needed.
	open func(name string, root bool) (*group, error)

	mu   sync.Mutex // guards what is below; held while a thread joins
	free []*group   // by name
	made int
	rest *group
	root *group // rest, for commands of root
}

// A group is one in each tree.
type group struct {
	name     string
	fork     forkExec // starts a command in it
	counters counters
}

// openGroups takes the inherited descriptors over, in the order of names: a
// directory that holds the groups for each controller, or the one of version 2.
// The first group, and the one for commands of root, is made with l. Commands start
// as fork has it, which is given their group, or [noGroup] where their thread is in it.
func openGroups(names string, first int, l *launcher, fork func(group int) forkExec) (*groups, error) {
	g := &groups{}
	if names == unifiedGroups {
		together := &refusals{by: map[string]int64{}}
		g.open = func(name string, root bool) (*group, error) { return openUnified(first, name, root, l, fork, together) }
	} else {
		trees := map[string]int{}
		for i, name := range strings.Split(names, ",") {
			trees[name] = first + i
		}
		spare := l
		g.open = func(name string, root bool) (*group, error) {
			one := spare
			spare = nil // the first group's only
			return joinThread(trees, name, root, one, fork(noGroup))
		}
	}
	one, err := g.open(groupName(0), false)
	if err != nil {
		return nil, err
	}
	g.free, g.made = append(g.free, one), 1
	return g, nil
}

func groupName(i int) string { return "x" + itoa(i) }

// take returns a group for a command; it is for that alone unless it is shared.
func (g *groups) take(root bool) (*group, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.free) > 0 && !root {
		one := g.free[0]
		g.free = g.free[1:]
		return one, nil
	}
	name, keep := restGroups, &g.rest
	switch {
	case root:
		keep = &g.root
	case g.made < ownGroups:
		name, keep = groupName(g.made), nil
	}
	if keep != nil && *keep != nil {
		return *keep, nil
	}
	one, err := g.open(name, root)
	switch {
	case err != nil:
		return nil, err
	case keep != nil:
		*keep = one
	default:
		g.made++
	}
	return one, nil
}

// give gives a group back, in which nothing runs any more.
func (g *groups) give(one *group) {
	if one.shared() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = append(g.free, one)
	// The first is used again first: others' threads may never be needed again.
	slices.SortFunc(g.free, func(a, b *group) int { return strings.Compare(a.name, b.name) })
}

func (g *group) shared() bool { return g.name == restGroups }

// kill ends all that is in a group at once, what is being forked there included,
// and reports whether the kernel can: in version 2, from Linux 5.14 on.
func (g *group) kill() bool {
	tree, unified := g.counters.trees[unifiedGroups]
	return unified && write(tree, g.name+"/cgroup.kill", "1") == nil
}

// openUnified opens a group of version 2, below the directory run. Commands of
// users are started by l, those of root by a thread whose bounding set isn't
// empty.
func openUnified(run int, name string, root bool, l *launcher, fork func(group int) forkExec, together *refusals) (*group, error) {
	dir, err := openIn(run, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	one := &group{name: name, fork: fork(dir), counters: counters{trees: map[string]int{unifiedGroups: run}, name: name, kept: newKeptFiles(), together: together}}
	if io, err := openIn(dir, "io.stat", unix.O_RDONLY); err == nil {
		one.counters.devices = true
		_ = unix.Close(io)
	}
	if !root {
		one.fork = l.with(one.fork)
	}
	return one, nil
}

// write writes to a file of a group.
func write(tree int, file, text string) error {
	fd, err := openIn(tree, file, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.Write(fd, []byte(text))
	return err
}

func openIn(tree int, file string, flags int) (int, error) {
	return unix.Openat(tree, file, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
}
