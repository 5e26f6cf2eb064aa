// Package tasks counts what becomes of the tasks of a cluster's runners: starts, their
// phases, ends, removals. It counts with atomics alone, so that nothing waits for metrics.
// Both clusters count with it, so that the same name means the same on both.
package tasks

import (
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime/timing"
)

// A Phase is a part of a start. docs/reference/metrics.md says what each is on which cluster.
type Phase string

// The phases, in the order of one machine. On Nomad Register comes second, and Place third.
const (
	Place     Phase = "PLACE"     // until it has its place
	Turn      Phase = "TURN"      // until its turn among the parallel starts
	Register  Phase = "REGISTER"  // until Nomad has its job
	Prestart  Phase = "PRESTART"  // what is made before the sandbox
	Start     Phase = "START"     // the sandbox
	Poststart Phase = "POSTSTART" // until its agent answers
	Save      Phase = "SAVE"      // until that is stored
)

// Counts count what happens to tasks. Its fields and methods may be used at once.
type Counts struct {
	Starts          atomic.Int64 // whose agent answered
	StartFailures   atomic.Int64 // attempts to start one that failed, each
	Restarts        atomic.Int64 // attempts after one that failed
	Restores        atomic.Int64 // tasks of an earlier server that were taken over
	Lost            atomic.Int64 // tasks of an earlier server that had ended
	Exits           atomic.Int64 // tasks that ended by themselves
	Kills           atomic.Int64 // tasks that were ended, because their runner was to go
	ForcedKills     atomic.Int64 // that didn't end of it in time
	RemovalFailures atomic.Int64 // tries to remove a task that failed, each
	Leaks           atomic.Int64 // tasks of which something could not be removed

	phases map[Phase]*timing.Histogram // never changed
}

// New returns counts for any number of tasks, whose starts have these phases.
func New(phases ...Phase) *Counts {
	c := &Counts{phases: map[Phase]*timing.Histogram{}}
	for _, phase := range phases {
		c.phases[phase] = timing.New(StartBounds()...)
	}
	return c
}

// StartBounds are the bounds of buckets that suit parts of a start.
func StartBounds() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{ms, 2500 * time.Microsecond, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, 1000 * ms, 2500 * ms, 5000 * ms, 10000 * ms, 30000 * ms}
}

// Took counts a phase that began at a time and ends now, which it returns. The phase must
// be one that New was called with.
func (c *Counts) Took(phase Phase, began time.Time) time.Time {
	now := time.Now()
	c.Lasted(phase, now.Sub(began))
	return now
}

// Lasted counts a phase that lasted so long.
func (c *Counts) Lasted(phase Phase, took time.Duration) { c.phases[phase].Add(took) }

// Stats are what was counted. The fields are those of Counts.
type Stats struct {
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

// Read returns what was counted until now.
func (c *Counts) Read() Stats {
	s := Stats{
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
