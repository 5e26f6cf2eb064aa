package nomad

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/nomad/state"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

// Stats are the counts of a Cluster since it was created, and its current state.
type Stats struct {
	Tasks     health.TaskStats
	Pending   int                       // evaluations of runners without an allocation that Nomad's scheduler hasn't processed
	Blocked   int                       // evaluations of runners without an allocation for which no node has the resources
	Lacking   map[listing.Dimension]int // blocked evaluations, by the resource that they wait for
	Placed    int64                     // runners that got an allocation
	Capacity  runtime.Capacity          // of the nodes, and what is promised to runners with an allocation
	Leaked    int                       // runners that couldn't be removed completely
	Problems  int                       // reported by Status
	Calls     connection.Stats
	Lock      state.LockStats
	LockLasts time.Duration // after which a lock that isn't renewed is free
	Bridges   BridgeStats
}

// Stats returns the counts so far, and what the last lists said. It doesn't call Nomad.
func (c *Cluster) Stats() Stats {
	c.runners.mu.Lock()
	s := c.runners.observed.stats
	s.Leaked = len(c.runners.observed.leaks)
	c.runners.mu.Unlock()
	capacity := c.nodes.Capacity()
	capacity.CPUMHzUsed, capacity.MemoryMiBUsed = s.Capacity.CPUMHzUsed, s.Capacity.MemoryMiBUsed
	s.Capacity = capacity
	s.Tasks, s.Problems, s.Calls, s.Bridges = c.counts.Read(), len(c.problems.All()), c.nomad.Stats(), c.bridges.Stats()
	s.Lock, s.LockLasts = c.lock.Stats(), c.config.LockTTL
	s.Placed = s.Tasks.Phases[health.PhasePlace].Count()
	return s
}

// counts are the counters for the phases of a start on Nomad. They are atomic.
type counts struct{ *health.TaskCounts }

// observation is what the last lists said of all runners. It is replaced as a whole.
type observation struct {
	stats  Stats                       // the numbers of evaluations, and what nodes have promised
	leaks  map[runtime.RunnerID]string // runners that are removed incompletely, and what is left
	strays map[runtime.RunnerID]bool   // runners whose allocation runs without a job
}

// startTimes are the steps of a start. They are zero for a runner of an earlier server.
type startTimes struct {
	registered time.Time // when its job was registered
	placed     time.Time // when its allocation was first known
	answered   time.Time // when its agent answered
	measured   bool      // the node's times were counted
	failed     int64     // failed attempts that were counted
	again      int64     // attempts after a failed one that were counted
}

// registered counts the registration of e's job. The caller of this and of the functions below
// holds the runners' mu.
func (c *counts) registered(e *entry) {
	e.start.registered = time.Now()
	c.placement(e)
}

func (c *counts) placed(e *entry) {
	if e.start.placed.IsZero() {
		e.start.placed = time.Now()
		c.placement(e)
	}
}

// placement counts how long e had no allocation, when both ends are known: an event may report the
// allocation before the registration is answered.
func (c *counts) placement(e *entry) {
	if !e.start.registered.IsZero() && !e.start.placed.IsZero() {
		c.Lasted(health.PhasePlace, e.start.placed.Sub(e.start.registered))
	}
}

func (c *counts) answered(e *entry, at time.Time) {
	if e.start.answered.IsZero() {
		e.start.answered = at
		c.Starts.Add(1)
		c.Observe(health.PhaseSave, at)
	}
}

func (c *counts) listed(e *entry) {
	switch {
	case e.ready == nil && e.removing:
		return // it is being removed: its end isn't a failure
	case e.ready == nil:
		failed, again := listing.Attempts(e.allocations)
		c.StartFailures.Add(max(failed-e.start.failed, 0))
		c.Restarts.Add(max(again-e.start.again, 0))
		e.start.failed, e.start.again = max(failed, e.start.failed), max(again, e.start.again)
		return
	}
	if e.start.measured || e.start.answered.IsZero() || len(e.allocations) != 1 || listing.Restarts(e.allocations[0]) > 0 {
		return // after several attempts it is unknown which one took how long
	}
	if took, known := listing.Began(e.allocations[0], e.access.Task); known {
		e.start.measured = true
		c.Lasted(health.PhaseStart, took)
		c.Lasted(health.PhasePoststart, e.start.answered.Sub(e.start.placed)-took)
	}
}

// adopted counts a runner of an earlier server, after a list has shown its state.
func (c *counts) adopted(e *entry) {
	switch {
	case e.ready == nil: // it is starting, or never became ready
	case e.runner.State == runtime.RunnerGone:
		c.Lost.Add(1)
	default:
		c.Restores.Add(1)
	}
}

// gone counts the end of a runner that wasn't removed.
func (c *counts) gone(e *entry) {
	switch {
	case e.ready == nil && e.start.failed == 0 && e.runner.GoneReason == runtime.GoneStartFailed:
		c.StartFailures.Add(1) // no task of it ever started
	// listed or adopted counts these.
	case e.ready == nil || e.adopted:
	case e.runner.GoneReason == runtime.GoneAgentDied, e.runner.GoneReason == runtime.GoneOutOfMemory, e.runner.GoneReason == runtime.GoneRescheduled:
		c.Exits.Add(1)
	}
}

// observe records what a listing says of all runners, and the leaks. It counts new leaks.
func (r *runners) observe(t *snapshot, leaks map[runtime.RunnerID]string, c *counts) {
	s := observation{stats: Stats{Lacking: map[listing.Dimension]int{}}, leaks: leaks, strays: map[runtime.RunnerID]bool{}}
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
				s.stats.Pending++
			case api.EvalStatusBlocked:
				s.stats.Blocked++
				for _, d := range listing.Lacks(evaluation) {
					s.stats.Lacking[d]++
				}
			}
		}
	}
	for id, all := range t.Allocations {
		for _, a := range all {
			if !listing.AllOver([]*api.AllocationListStub{a}) {
				mhz, mib := listing.Promised(a)
				s.stats.Capacity.CPUMHzUsed += mhz
				s.stats.Capacity.MemoryMiBUsed += mib
			}
		}
		if r.entries[id] == nil && t.Jobs[id] == nil && !t.Foreign[id] && r.removed[id] == 0 && !listing.AllOver(all) {
			s.strays[id] = true
			if r.observed.strays[id] { // in two listings; in one its job may have been created between the lists
				s.leaks[id] = fmt.Sprintf("its job is gone, and its allocation %s still runs: see what its node says, and stop it", all[0].ID)
			}
		}
	}
	// A leak counts once, when it first appears.
	for id := range s.leaks {
		if _, known := r.observed.leaks[id]; !known {
			c.Leaks.Add(1)
		}
	}
	r.observed = s
}

func (c *Cluster) reportLeaks(leaks map[runtime.RunnerID]string) {
	for id, left := range leaks {
		c.problems.Report(runnerSubject(id), left)
	}
	c.problems.ResolveFunc(func(subject string) bool {
		id, ok := strings.CutPrefix(subject, runnerSubject(""))
		return ok && leaks[runtime.RunnerID(id)] == ""
	})
}
