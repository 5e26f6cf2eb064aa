package groups

import (
	"fmt"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/launch"
)

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
	var err error
	t.Do(func() {
		for controller, tree := range trees {
			if err = write(tree, name+"/tasks", "0"); err != nil {
				err = fmt.Errorf("join the group %s of %s: %w", name, controller, err)
				return
			}
		}
	})
	if err != nil {
		if own {
			t.End()
		}
		return nil, err
	}
	return &Group{Launch: start.On(t), Counters: Counters{trees: trees, name: name, kept: newKeptFiles()}}, nil
}
