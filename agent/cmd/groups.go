package main

import (
	"fmt"
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

// Groups are the control groups of commands, each one in every tree. A command
// has one of its own as long as there are any free, so that the kernel counts for
// it alone; the rest share one.
//
// A command is in a group from its first instruction on, because the thread that
// forks it is: joining a group costs 5 to 12 ms on a machine that hasn't done it
// for 50 ms, so each group keeps its thread. That is there once the group was
// needed; the first group has the launcher's.
type groups struct {
	trees map[string]int // descriptors of the directories that hold the groups, by controller

	mu   sync.Mutex // guards what is below; held while a thread joins
	free []*group   // by name
	made int
	rest *group
	root *group // rest, for commands of root
}

// A group is one in each tree.
type group struct {
	name     string
	launcher *launcher
	counters counters
}

// openGroups takes the inherited descriptors over, in the order of names. The
// launcher's thread goes into the first group.
func openGroups(names string, first int, l *launcher) (*groups, error) {
	g := &groups{trees: map[string]int{}}
	for i, name := range strings.Split(names, ",") {
		g.trees[name] = first + i
	}
	one, err := g.join(groupName(0), l)
	if err != nil {
		return nil, err
	}
	g.free, g.made = append(g.free, one), 1
	return g, nil
}

func groupName(i int) string { return "x" + itoa(i) }

// join has a launcher's thread join a group.
func (g *groups) join(name string, l *launcher) (*group, error) {
	var err error
	l.do(func() {
		for controller, tree := range g.trees {
			if err = write(tree, name+"/tasks", "0"); err != nil {
				err = fmt.Errorf("join the group %s of %s: %w", name, controller, err)
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return &group{name: name, launcher: l, counters: counters{trees: g.trees, name: name}}, nil
}

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
	l, err := newLauncher(root)
	if err != nil {
		return nil, err
	}
	one, err := g.join(name, l)
	switch {
	case err != nil:
		l.end()
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
