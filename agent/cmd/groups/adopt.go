package groups

import (
	"fmt"
	"strconv"
)

// Name returns the group's name, which is unique in the runner.
func (g *Group) Name() string { return g.name }

// CanHold reports whether a process can wait in the group for the next command. It can in version
// 1. In version 2 the end of a command freezes all processes of its group.
func (g *Group) CanHold() bool { return !g.isUnified() }

// Adopt moves a process with a single thread into the group. In version 1 the saved user of the
// process must be the agent's. It may take 12 ms, because the kernel locks out forks.
func (g *Group) Adopt(pid int) error {
	for controller, tree := range g.trees {
		file := "/tasks"
		if g.isUnified() {
			file = "/cgroup.procs"
		}
		if err := write(tree, g.name+file, strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move into the group %s of %s: %w", g.name, controller, err)
		}
	}
	return nil
}

// Keep sets the process that waits in the group for its commands; 0 means that none does. It isn't counted for a
// command while it has no mark.
func (g *Group) Keep(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keeps.Store(int64(pid))
	g.applyLimit()
}
