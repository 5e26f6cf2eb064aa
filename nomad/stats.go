package nomad

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/bridges"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/lock"
	"github.com/rockpool/rockpool/nomad/outcome"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/tasks"
)

// Stats count what a Cluster has done since it was made, and say what it has now.
type Stats struct {
	Tasks     tasks.Stats
	Pending   int // evaluations of runners that wait for a place: Nomad's scheduler hasn't tried yet
	Blocked   int // likewise: it found no room
	Lacking   map[outcome.Dimension]int
	Placed    int64            // runners that got a place
	Capacity  runtime.Capacity // of the nodes, and what of it runners with a place were promised
	Leaked    int              // runners of which something is left, and that nobody gets
	Problems  int              // that Status tells
	Calls     connection.Stats
	Lock      lock.Stats
	LockLasts time.Duration // after which a lock that isn't renewed is another server's
	Bridges   bridges.Stats
}

// Stats returns what was counted up to now, and what the last lists said. It calls nobody.
func (c *Cluster) Stats() Stats {
	s := Stats{
		Tasks: c.counts.tasks.Read(), Capacity: c.nodes.Capacity(), Problems: len(c.problems.All()),
		Calls: c.nomad.Stats(), Lock: c.counts.lock.Read(), LockLasts: c.config.LockTTL, Bridges: c.bridges.Stats(),
	}
	s.Placed = s.Tasks.Phases[tasks.Place].Count()
	c.runners.mu.Lock()
	defer c.runners.mu.Unlock()
	seen := c.runners.seen
	s.Pending, s.Blocked, s.Lacking = seen.pending, seen.blocked, seen.lacking
	s.Capacity.CPUMHzUsed, s.Capacity.MemoryMiBUsed = seen.mhz, seen.mib
	s.Leaked = len(seen.leaks)
	return s
}

// counts are what a cluster counts, with atomics alone.
type counts struct {
	tasks *tasks.Counts
	lock  lock.Counts
}

func newCounts() counts {
	return counts{tasks: tasks.New(tasks.Turn, tasks.Register, tasks.Place, tasks.Start, tasks.Poststart, tasks.Save)}
}

// seen is what the last lists said of all runners. It is replaced as a whole.
type seen struct {
	pending, blocked int // evaluations of runners that wait for a place
	lacking          map[outcome.Dimension]int
	mhz              int // that nodes have promised to runners
	mib              int64
	leaks            map[runtime.RunnerID]string // of what something is left, and what
	strays           map[runtime.RunnerID]bool   // whose allocation runs, and whose job isn't there
}

// A startTimes is how far a runner's start is. It is the zero value for a runner of an
// earlier server, whose start can't be measured.
type startTimes struct {
	registered time.Time // when its job was
	placed     time.Time // when its allocation was first known
	answered   time.Time // when its agent did
	measured   bool      // what its node says of it was counted
	failed     int64     // attempts that failed, of those that were counted
	again      int64     // attempts after one that failed, likewise
}

// registered counts that e's job was registered. The caller holds mu of the runners, here
// and below.
func (c *counts) registered(e *entry) {
	e.start.registered = time.Now()
	c.place(e)
}

// placed counts that e's allocation is known, the first time.
func (c *counts) placed(e *entry) {
	if e.start.placed.IsZero() {
		e.start.placed = time.Now()
		c.place(e)
	}
}

// place counts how long e had no place, once both ends are known: an event may report its
// place before the answer to the registration comes.
func (c *counts) place(e *entry) {
	if !e.start.registered.IsZero() && !e.start.placed.IsZero() {
		c.tasks.Lasted(tasks.Place, e.start.placed.Sub(e.start.registered))
	}
}

// answered counts that e's agent answered at a time, which is stored by now.
func (c *counts) answered(e *entry, at time.Time) {
	if e.start.answered.IsZero() {
		e.start.answered = at
		c.tasks.Starts.Add(1)
		c.tasks.Observe(tasks.Save, at)
	}
}

// listed counts what allocations say of e's start.
func (c *counts) listed(e *entry) {
	switch {
	case e.ready == nil && e.removing:
		return // what ends it isn't a failure
	case e.ready == nil:
		failed, again := outcome.Attempts(e.allocations)
		c.tasks.StartFailures.Add(max(failed-e.start.failed, 0))
		c.tasks.Restarts.Add(max(again-e.start.again, 0))
		e.start.failed, e.start.again = max(failed, e.start.failed), max(again, e.start.again)
		return
	}
	if e.start.measured || e.start.answered.IsZero() || len(e.allocations) != 1 || outcome.Restarts(e.allocations[0]) > 0 {
		return // of one that began several times nobody knows which took how long
	}
	if took, known := outcome.Began(e.allocations[0], e.way.Task); known {
		e.start.measured = true
		c.tasks.Lasted(tasks.Start, took)
		c.tasks.Lasted(tasks.Poststart, e.start.answered.Sub(e.start.placed)-took)
	}
}

// adopted counts a runner of an earlier server, of which a list has said by now how it is.
func (c *counts) adopted(e *entry) {
	switch {
	case e.ready == nil: // it starts, or never did
	case e.runner.State == runtime.RunnerGone:
		c.tasks.Lost.Add(1)
	default:
		c.tasks.Restores.Add(1)
	}
}

// gone counts the end of a runner that nobody asked for.
func (c *counts) gone(e *entry) {
	switch {
	case e.ready == nil && e.start.failed == 0 && e.runner.GoneReason == runtime.GoneStartFailed:
		c.tasks.StartFailures.Add(1) // it never got as far as a task
	case e.ready == nil || e.adopted:
	case e.runner.GoneReason == runtime.GoneAgentDied, e.runner.GoneReason == runtime.GoneOutOfMemory, e.runner.GoneReason == runtime.GoneRescheduled:
		c.tasks.Exits.Add(1)
	}
}

// see takes in what a listing says of all runners, and of what something is left. It
// counts the leaks that are new.
func (r *runners) see(t *truth, leaks map[runtime.RunnerID]string, c *counts) {
	s := seen{lacking: map[outcome.Dimension]int{}, leaks: leaks, strays: map[runtime.RunnerID]bool{}}
	for id, e := range r.entries {
		if e.leak != "" {
			s.leaks[id] = e.leak
		}
		if e.runner.State != runtime.RunnerStarting || e.allocation != "" {
			continue
		}
		for _, evaluation := range t.Evaluations[id] {
			switch evaluation.Status {
			case api.EvalStatusPending:
				s.pending++
			case api.EvalStatusBlocked:
				s.blocked++
				for _, d := range outcome.Lacks(evaluation) {
					s.lacking[d]++
				}
			}
		}
	}
	for id, all := range t.Allocations {
		for _, a := range all {
			if !outcome.AllOver([]*api.AllocationListStub{a}) {
				mhz, mib := outcome.Promised(a)
				s.mhz += mhz
				s.mib += mib
			}
		}
		if r.entries[id] == nil && t.Jobs[id] == nil && !t.Foreign[id] && r.removed[id] == 0 && !outcome.AllOver(all) {
			s.strays[id] = true
			if r.seen.strays[id] { // else its job may have been made between the lists
				s.leaks[id] = fmt.Sprintf("its job is gone, and its allocation %s still runs: see what its node says, and stop it", all[0].ID)
			}
		}
	}
	for id := range s.leaks {
		if _, known := r.seen.leaks[id]; !known {
			c.tasks.Leaks.Add(1)
		}
	}
	r.seen = s
}

// reportLeaks has Status tell what is left of which runners, as long as that is so.
func (c *Cluster) reportLeaks(leaks map[runtime.RunnerID]string) {
	for id, left := range leaks {
		c.problems.Report(runnerSubject(id), left)
	}
	c.problems.ResolveFunc(func(subject string) bool {
		id, ok := strings.CutPrefix(subject, runnerSubject(""))
		return ok && leaks[runtime.RunnerID(id)] == ""
	})
}
