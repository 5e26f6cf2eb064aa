package health

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

// A Phase is a part of a start. docs/reference/metrics.md says what each is on which cluster.
type Phase string

// The phases, in the order of one machine. On Nomad PhaseRegister comes second, and PhasePlace third.
const (
	PhasePlace     Phase = "PLACE"     // until it is placed
	PhaseTurn      Phase = "TURN"      // until its turn among concurrent starts
	PhaseRegister  Phase = "REGISTER"  // until Nomad has its job
	PhasePrestart  Phase = "PRESTART"  // preparation before the sandbox
	PhaseStart     Phase = "START"     // the sandbox
	PhasePoststart Phase = "POSTSTART" // until its agent answers
	PhaseSave      Phase = "SAVE"      // until its readiness is stored
)

// TaskCounts count the events of a cluster's tasks: starts and their phases, ends, removals. They are atomics
// only, so reading metrics never blocks. A name means the same on both clusters. Its fields and methods are
// safe for concurrent use.
type TaskCounts struct {
	Starts          atomic.Int64 // tasks whose agent answered
	StartFailures   atomic.Int64 // failed attempts to start a task
	Restarts        atomic.Int64 // attempts after a failed one
	Restores        atomic.Int64 // tasks of an earlier server that were adopted
	Lost            atomic.Int64 // tasks of an earlier server that had ended
	Exits           atomic.Int64 // tasks that ended unasked
	Kills           atomic.Int64 // tasks killed because their runner was removed
	ForcedKills     atomic.Int64 // of these, tasks that didn't end in time
	RemovalFailures atomic.Int64 // failed attempts to remove a task
	Leaks           atomic.Int64 // tasks that left something behind

	phases map[Phase]*timing.Histogram // never changed
}

// NewTaskCounts returns counters for tasks whose starts have these phases.
func NewTaskCounts(phases ...Phase) *TaskCounts {
	c := &TaskCounts{phases: map[Phase]*timing.Histogram{}}
	for _, phase := range phases {
		c.phases[phase] = timing.New(StartBounds()...)
	}
	return c
}

// StartBounds returns bounds of buckets that suit the phases of a start.
func StartBounds() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{ms, 2500 * time.Microsecond, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, 1000 * ms, 2500 * ms, 5000 * ms, 10000 * ms, 30000 * ms}
}

// Observe counts a phase that began at a time and ends now, and returns now. The phase must be one
// of NewTaskCounts.
func (c *TaskCounts) Observe(phase Phase, began time.Time) time.Time {
	now := time.Now()
	c.Lasted(phase, now.Sub(began))
	return now
}

// Lasted counts a phase of this duration.
func (c *TaskCounts) Lasted(phase Phase, took time.Duration) { c.phases[phase].Add(took) }

// TaskStats are values of all counters. The fields are those of TaskCounts.
type TaskStats struct {
	Starts          int64
	StartFailures   int64
	Restarts        int64
	Restores        int64
	Lost            int64
	Exits           int64
	Kills           int64
	ForcedKills     int64
	RemovalFailures int64
	Leaks           int64
	Phases          map[Phase]timing.Reading
}

// Read returns the present values.
func (c *TaskCounts) Read() TaskStats {
	s := TaskStats{
		Starts:          c.Starts.Load(),
		StartFailures:   c.StartFailures.Load(),
		Restarts:        c.Restarts.Load(),
		Restores:        c.Restores.Load(),
		Lost:            c.Lost.Load(),
		Exits:           c.Exits.Load(),
		Kills:           c.Kills.Load(),
		ForcedKills:     c.ForcedKills.Load(),
		RemovalFailures: c.RemovalFailures.Load(),
		Leaks:           c.Leaks.Load(),
		Phases:          make(map[Phase]timing.Reading, len(c.phases)),
	}
	for phase, h := range c.phases {
		s.Phases[phase] = h.Read()
	}
	return s
}

// mostRemoved bounds the runners kept, at about 1 KB each.
const mostRemoved = 500

// A RemovedRunner has the events of a removed runner.
type RemovedRunner struct {
	Environment runtime.EnvironmentID
	Events      []runtime.TaskEvent
	Allocations []runtime.Allocation // if the cluster forgets them with the runner
}

// RemovedRunners keeps a limited number of the runners removed last. The zero value has none. It isn't safe
// for concurrent use.
type RemovedRunners struct {
	known map[runtime.RunnerID]RemovedRunner
	order []runtime.RunnerID // oldest first
}

// Add adds a runner, or replaces it. If there are too many, it drops the oldest.
func (r *RemovedRunners) Add(id runtime.RunnerID, runner RemovedRunner) {
	if r.known == nil {
		r.known = map[runtime.RunnerID]RemovedRunner{}
	}
	if _, again := r.known[id]; !again {
		r.order = append(r.order, id)
	}
	r.known[id] = runner
	if len(r.order) > mostRemoved {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
}

// All returns all runners kept, oldest first.
func (r *RemovedRunners) All() iter.Seq[RemovedRunner] {
	return func(yield func(RemovedRunner) bool) {
		for _, id := range r.order {
			if !yield(r.known[id]) {
				return
			}
		}
	}
}

// Find returns what is kept about a runner, and whether anything is.
func (r *RemovedRunners) Find(id runtime.RunnerID) (RemovedRunner, bool) {
	found, ok := r.known[id]
	return found, ok
}
