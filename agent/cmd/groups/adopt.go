package groups

import (
	"fmt"
	"strconv"
)

// Name is the group's, one of its own within the runner.
func (g *Group) Name() string { return g.name }

// CanHold reports whether a process can wait in the group between commands. In version 1 it can. In
// version 2 the kernel ends a group's processes together.
func (g *Group) CanHold() bool { return !g.isUnified() }

// Adopt moves a process of one thread into the group. In version 1 its saved user must be the
// agent's. It may take 12 ms, for the kernel's lock against forks.
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

// Keep says which process waits in the group for its commands; 0: none. It counts for none of them,
// as long as it has no mark.
func (g *Group) Keep(pid int) { g.keeps.Store(int64(pid)) }
