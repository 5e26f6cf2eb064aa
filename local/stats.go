package local

import (
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime/timing"
)

// Stats count what a Cluster has done since it was made, and say what it has
// now.
type Stats struct {
	Scheduler scheduler.Stats
	Node      scheduler.Node
	Tasks     taskrunner.Stats
	Placing   timing.Reading // from the wish for a runner to its place
	Leaked    int            // runners of which something could not be removed
	Problems  int            // that Status tells
}

// Stats returns what was counted up to now. It asks nothing of the machine.
func (c *Cluster) Stats() Stats {
	s := Stats{Scheduler: c.placer.Scheduler.Stats(), Node: c.placer.Node(), Tasks: c.counts.Read(), Placing: c.placer.Waited()}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Leaked, s.Problems = c.leaked, len(c.visible())
	return s
}
