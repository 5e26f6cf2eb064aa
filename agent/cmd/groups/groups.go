// Package groups has the control groups of commands, of version 1 and 2. The maker of the runner
// has made them, beside the agent's own. A command has a group of its own as long as one is free,
// so that the kernel limits and counts it alone; the other commands share one. It is there from
// its first instruction on.
package groups

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/agent/serve"
)

// Names of the groups.
const (
	ownGroups  = 2 // x0 …
	restGroups = "rest"
)

// unified stands for the names of controllers where the groups are of version 2.
const unified = "unified"

// Groups are the groups of a runner, each one in every tree. Its methods are safe for concurrent
// use.
type Groups struct {
	// open opens a group. In version 1 a thread joins it (joinThread), so a group is opened when it
	// is needed.
	open func(name string, root bool) (*Group, error)
	// zygote returns what starts a program of a thread in the shared group.
	zygote func(t *confinement.Thread) (launch.Func, error)

	mu   sync.Mutex // guards what is below; held while a thread joins
	free []*Group   // by name
	made int
	rest *Group
	root *Group   // rest, for commands of root
	all  []*Group // that were opened

	together *Counters // of all groups
}

// A Group is one in each tree. [Group.Counters] are of one command at a time.
type Group struct {
	Counters
	Launch launch.Func // starts a command in it
}

// Open takes over the inherited descriptors from first on, in the order of names: a directory
// that holds the groups for each controller, or with "unified" the one of version 2. Commands
// start as fork has it in their group's directory, or in [launch.NoGroup] where their thread is
// in the group; commands of users start on a thread without a bounding set. The first group has
// t.
func Open(names string, first int, t *confinement.Thread, fork func(group int) launch.Func) (*Groups, error) {
	g := &Groups{}
	trees := map[string]int{}
	if names == unified {
		trees[unified] = first
		together := &refusals{by: map[string]int64{}}
		g.open = func(name string, root bool) (*Group, error) { return openUnified(first, name, root, t, fork, together) }
		g.zygote = func(t *confinement.Thread) (launch.Func, error) {
			return func(file string, argv []string, attr *syscall.ProcAttr) (int, error) {
				dir, err := openIn(first, restGroups, unix.O_RDONLY|unix.O_DIRECTORY)
				if err != nil {
					return 0, err
				}
				defer func() { _ = unix.Close(dir) }()
				return fork(dir).On(t)(file, argv, attr)
			}, nil
		}
	} else {
		for i, name := range strings.Split(names, ",") {
			trees[name] = first + i
		}
		spare := t
		g.open = func(name string, root bool) (*Group, error) {
			one := spare
			spare = nil // the first group's only
			return joinThread(trees, name, root, one, fork(launch.NoGroup))
		}
		g.zygote = func(t *confinement.Thread) (launch.Func, error) {
			return fork(launch.NoGroup).On(t), join(t, trees, restGroups)
		}
	}
	one, err := g.open(groupName(0), false)
	if err != nil {
		return nil, err
	}
	g.free, g.made, g.all = append(g.free, one), 1, append(g.all, one)
	g.together = &Counters{trees: trees, name: ".", kept: newKeptFiles()}
	return g, nil
}

func groupName(i int) string { return "x" + strconv.Itoa(i) }

// Take returns a group for a command, of root or of the user; its own or, if none is free, the
// shared one.
func (g *Groups) Take(root bool) (*Group, error) {
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
	if err != nil {
		return nil, err
	}
	g.all = append(g.all, one)
	switch {
	case keep != nil:
		*keep = one
	default:
		g.made++
	}
	return one, nil
}

// Now adds what all commands used since the runner was made, and hold. It reports whether processor
// time is counted.
func (g *Groups) Now(now *serve.Now) (countsCPU bool) {
	g.together.total(now)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		now.Processes -= int(one.launchers())
	}
	now.Processes = max(0, now.Processes)
	return g.together.CountsCPU()
}

// Give gives a group back, in which nothing runs any more.
func (g *Groups) Give(one *Group) {
	if !one.Own() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = append(g.free, one)
	// The first is used again first: others' threads may never be needed again.
	slices.SortFunc(g.free, func(a, b *Group) int { return strings.Compare(a.name, b.name) })
}

// Zygote returns what starts programs on t in the group that further commands share: what a
// zygote holds is charged to the runner's commands, not to the agent.
func (g *Groups) Zygote(t *confinement.Thread) (launch.Func, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.zygote(t)
}

// Own reports whether the group is one command's.
func (g *Group) Own() bool { return g.name != restGroups }

// Kill ends all that is in a group at once, including what is being forked there. It reports
// whether the kernel can: in version 2, from Linux 5.14 on.
func (g *Group) Kill() bool {
	tree, known := g.trees[unified]
	return known && write(tree, g.name+"/cgroup.kill", "1") == nil
}

// Members returns the processes of a group that aren't dead, and whether these are sure to be all: not
// if one ended after it was listed, which may have forked before. In version 1 the kernel lists
// the agent too, for its thread.
func (g *Group) Members() (found []int, sure bool) {
	fd, err := openIn(g.tree("pids"), g.name+"/cgroup.procs", unix.O_RDONLY)
	if err != nil {
		return nil, err == unix.ENOENT
	}
	file := os.NewFile(uintptr(fd), "cgroup.procs")
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(file)
	sure = err == nil
	self := unix.Getpid()
	for field := range bytes.FieldsSeq(text) {
		pid, err := strconv.Atoi(string(field))
		if err != nil || pid == self {
			continue
		}
		s, err := proc.ReadStatus(pid)
		switch {
		case err != nil || s.Dead:
			sure = false
		case s.Mark != 0 || int64(pid) != g.keeps.Load():
			found = append(found, pid)
		}
	}
	return found, sure
}

// In version 1 of cgroups a thread can be in another group than its process, and a fork is where
// its thread is. So a command gets into a group by the thread that forks it. Joining a group
// costs 5 to 12 ms on a machine that hasn't done it for 50 ms, so each group keeps its thread
// once the group was needed.

// joinThread makes a thread join a group: t, or where that is nil a new one.
func joinThread(trees map[string]int, name string, root bool, t *confinement.Thread, start launch.Func) (*Group, error) {
	own := t == nil
	if own {
		var err error
		if t, err = confinement.NewThread(root); err != nil {
			return nil, err
		}
	}
	if err := join(t, trees, name); err != nil {
		if own {
			t.End()
		}
		return nil, err
	}
	return &Group{Launch: start.On(t), Counters: Counters{trees: trees, name: name, kept: newKeptFiles()}}, nil
}

// join puts a thread into a group.
func join(t *confinement.Thread, trees map[string]int, name string) (err error) {
	t.Do(func() {
		for controller, tree := range trees {
			if err = write(tree, name+"/tasks", "0"); err != nil {
				err = fmt.Errorf("join the group %s of %s: %w", name, controller, err)
				return
			}
		}
	})
	return err
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
