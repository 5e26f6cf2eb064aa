// Package groups manages the control groups of commands, of cgroups version 1 and 2. It guarantees
// that a command is in its group from its first instruction, so that the kernel counts and limits
// everything that it does.
//
// The maker of the runner made the groups, next to the agent's own. A command gets a group of its
// own while one is free. The kernel then limits and counts it alone. Further commands share one
// group.
//
// The package also limits and frees kernel memory that no group counts. These are file locks, TCP
// connections that no program has accepted, and System V objects that no process uses any longer.
// (The filter in package confinement limits netlink sockets.)
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

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/proc"
)

const (
	ownGroups  = 2 // groups for one command each: x0, x1
	restGroups = "rest"
)

// unified replaces the names of controllers in version 2.
const unified = "unified"

// Groups are the control groups of a runner. Each exists in every tree of controllers. Its methods
// are safe for concurrent use.
type Groups struct {
	// open opens a group. In version 1 that makes a thread join it (joinThread), so it is called
	// when the group is first needed.
	open func(name string, root bool) (*Group, error)
	// zygote returns a Func that starts a program on a thread in the shared group.
	zygote func(t *confinement.Thread) (launch.Func, error)

	mu   sync.Mutex // guards the fields below; held while a thread joins a group (5 to 12 ms)
	free []*Group   // sorted by name
	made int        // groups for one command that were opened, at most ownGroups
	rest *Group     // the shared group
	root *Group     // rest, for commands of root
	all  []*Group   // all that were opened

	together *Counters // of all groups together
}

// A Group is one control group, in each tree. Its [Counters] are for one command at a time.
type Group struct {
	Counters
	Launch launch.Func // starts a command in the group

	mu        sync.Mutex // guards the fields below
	processes int        // the limit of the present command, 0 if there is none
	usual     string     // the limit of processes without a command's own, "" before it was read
}

// Open takes ownership of the inherited descriptors from first on, in the order of names. Each is a
// directory with the groups of a controller; with "unified" there is one directory of version 2.
//
// Fork returns a Func that starts a program in a group, given by its directory, or in the calling
// thread's group ([launch.NoGroup]). Commands of users start on threads with an empty bounding set.
// The first group uses t, the others make their own.
func Open(names string, first int, t *confinement.Thread, fork func(group int) launch.Func) (*Groups, error) {
	g := &Groups{}
	trees := map[string]int{}
	if names == unified {
		trees[unified] = first
		together := &refusals{by: map[string]int64{}}
		g.open = func(name string, root bool) (*Group, error) { return openUnified(first, name, root, t, fork, together) }
		g.zygote = func(t *confinement.Thread) (launch.Func, error) {
			return func(file string, argv []string, attr *launch.Attr) (int, error) {
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
			spare = nil // only the first group uses it
			return joinThread(trees, name, root, one, fork(launch.NoGroup))
		}
		g.zygote = func(t *confinement.Thread) (launch.Func, error) {
			return fork(launch.NoGroup).On(t), join(t, trees, restGroups)
		}
	}
	g.together = &Counters{trees: trees, name: ".", kept: newKeptFiles()}
	one, err := g.add(groupName(0), false)
	if err != nil {
		return nil, err
	}
	g.free = append(g.free, one)
	return g, nil
}

// add opens a group. The caller holds the mutex.
func (g *Groups) add(name string, root bool) (*Group, error) {
	one, err := g.open(name, root)
	if err != nil {
		return nil, err
	}
	g.all = append(g.all, one)
	if one.PerCommand() {
		g.made++
	}
	return one, nil
}

func groupName(i int) string { return "x" + strconv.Itoa(i) }

// Take reserves a group for a command, of root or of the user. If no group for a single command is free it returns
// the shared one. The caller must return the group by Give.
func (g *Groups) Take(root bool) (*Group, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.free) > 0 && !root {
		one := g.free[0]
		g.free = g.free[1:]
		return one, nil
	}
	// A group for one command is opened when it is first needed.
	if g.made < ownGroups && !root {
		return g.add(groupName(g.made), false)
	}
	shared := &g.rest
	if root {
		shared = &g.root
	}
	var err error
	if *shared == nil {
		*shared, err = g.add(restGroups, root)
	}
	return *shared, err
}

// Now adds the usage of all commands since the runner's start, and what they hold now. It reports
// whether the kernel counts processor time.
func (g *Groups) Now(now *agent.Used) (countsCPU bool) {
	g.together.total(now)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		now.Processes -= int(one.launchers())
	}
	now.Processes = max(0, now.Processes)
	return g.together.CountsCPU()
}

// Give returns a group that Take returned, after the last process in it has ended.
func (g *Groups) Give(one *Group) {
	if !one.PerCommand() {
		return
	}
	one.LimitProcesses(0)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = append(g.free, one)
	// Prefer the first group again, so that the threads of other groups may never be needed.
	slices.SortFunc(g.free, func(a, b *Group) int { return strings.Compare(a.name, b.name) })
}

// Zygote returns a Func that starts programs on t in the shared group, so that the kernel charges a
// zygote to the runner's commands, not to the agent.
func (g *Groups) Zygote(t *confinement.Thread) (launch.Func, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.zygote(t)
}

// PerCommand reports whether the group is for one command at a time.
func (g *Group) PerCommand() bool { return g.name != restGroups }

// LimitProcesses limits the processes and threads of the group's command, exactly; 0 removes the
// limit. It reports whether the kernel enforces it now.
func (g *Group) LimitProcesses(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n == 0 && g.processes == 0 {
		return false
	}
	before := g.processes
	if g.processes = n; !g.applyLimit() {
		g.processes = max(n, before) // so that the next call writes again
		return false
	}
	return true
}

// applyLimit writes the limit of processes. The caller holds the mutex.
func (g *Group) applyLimit() bool {
	const file = "/pids.max"
	if g.usual == "" {
		var buf [32]byte
		if g.usual = string(bytes.TrimSpace(g.text(buf[:], "pids", "pids.max"))); g.usual == "" {
			return false
		}
	}
	limit, n := g.usual, g.processes
	if usual, err := strconv.Atoi(g.usual); err == nil && n == 0 && !g.isUnified() {
		n = usual - 1 // it includes the agent's thread
	}
	if n > 0 {
		limit = strconv.Itoa(n + int(g.launchers()))
	}
	return write(g.tree("pids"), g.name+file, limit) == nil
}

// Freeze stops all processes of the group in one step, including those being forked, so that none
// can outrun its end: a frozen process can be killed. The caller must call thaw before the next
// command starts in the group. Freeze returns nil if the kernel can't: it can in version 2 since
// Linux 5.2.
//
// A group must never be killed by its cgroup.kill. Some kernels, for example 6.1.176 and 6.18.44,
// afterwards kill every process that clone3 starts in the group.
func (g *Group) Freeze() (thaw func()) {
	tree, known := g.trees[unified]
	if !known {
		return nil
	}
	fd, err := openIn(tree, g.name+"/cgroup.freeze", unix.O_WRONLY)
	if err != nil {
		return nil
	}
	thaw = func() {
		_, _ = unix.Write(fd, []byte("0"))
		_ = unix.Close(fd)
	}
	if _, err := unix.Write(fd, []byte("1")); err != nil {
		thaw()
		return nil
	}
	return thaw
}

// Members returns the living processes of the group. Sure reports whether the list is complete. It
// isn't if a process ended after it was listed, since that may have forked before. In version 1 the
// list includes the agent, for its thread in the group.
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

// In version 1 of cgroups a thread can be in another group than its process, and a child starts in
// the group of the thread that forks it. So each group has a thread of the agent that forks its
// commands. Joining a group takes 5 to 12 ms on a machine where no thread joined one for 50 ms. So
// the thread stays once the group was needed.

// joinThread makes a thread join a group: t or, if t is nil, a new one.
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
