package main

import "fmt"

// In version 1 of cgroups a thread can be in another group than its process, and
// what it forks is where it is. A command gets into a group by the thread that
// forks it: joining a group costs 5 to 12 ms on a machine that hasn't done it
// for 50 ms, so each group keeps its thread. That is there once the group was
// needed; the first group has the launcher's.

// joinThread has a thread join a group: l's, or where that is nil a new one's.
func joinThread(trees map[string]int, name string, root bool, l *launcher, start forkExec) (*group, error) {
	own := l == nil
	if own {
		var err error
		if l, err = newLauncher(root); err != nil {
			return nil, err
		}
	}
	var err error
	l.do(func() {
		for controller, tree := range trees {
			if err = write(tree, name+"/tasks", "0"); err != nil {
				err = fmt.Errorf("join the group %s of %s: %w", name, controller, err)
				return
			}
		}
	})
	if err != nil {
		if own {
			l.end()
		}
		return nil, err
	}
	return &group{name: name, fork: l.with(start), counters: counters{trees: trees, name: name, kept: newKeptFiles()}}, nil
}
