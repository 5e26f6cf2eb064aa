package taskrunner

import (
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime/timing"
)

// A StartPhase is a part of a start.
type StartPhase string

// The phases, in their order.
const (
	PhaseTurn      StartPhase = "TURN"      // waiting for Config.Turn
	PhasePrestart  StartPhase = "PRESTART"  // the hooks
	PhaseStart     StartPhase = "START"     // the driver
	PhasePoststart StartPhase = "POSTSTART" // the hooks
	PhaseSave      StartPhase = "SAVE"      // that it runs
)

// StartPhases are all, in their order.
func StartPhases() []StartPhase {
	return []StartPhase{PhaseTurn, PhasePrestart, PhaseStart, PhasePoststart, PhaseSave}
}

// Counts count what happens to the tasks that have them in their Config.
type Counts struct {
	starts, startFailures, restarts, restores, lost   atomic.Int64
	exits, kills, forcedKills, removalFailures, leaks atomic.Int64
	phases                                            map[StartPhase]*timing.Histogram // never changed
}

// NewCounts returns Counts for any number of tasks.
func NewCounts() *Counts {
	c := &Counts{phases: map[StartPhase]*timing.Histogram{}}
	for _, phase := range StartPhases() {
		c.phases[phase] = timing.New(StartBounds()...)
	}
	return c
}

// StartBounds are the bounds of buckets that suit parts of a start.
func StartBounds() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{ms, 2500 * time.Microsecond, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, 1000 * ms, 2500 * ms, 5000 * ms, 10000 * ms, 30000 * ms}
}

// took counts a phase that began at a time and ends now, which it returns.
func (c *Counts) took(phase StartPhase, began time.Time) time.Time {
	now := time.Now()
	c.phases[phase].Add(now.Sub(began))
	return now
}

// Stats are what was counted.
type Stats struct {
	Starts          int64 // that came to RUNNING
	StartFailures   int64 // attempts that didn't, each
	Restarts        int64 // attempts after one that failed
	Restores        int64 // tasks of the last server that were found again
	Lost            int64 // that were not, though they were RUNNING
	Exits           int64 // tasks that ended by themselves
	Kills           int64 // tasks that were sent the signal to end
	ForcedKills     int64 // that didn't end of it in time
	RemovalFailures int64 // tries to remove a task, each
	Leaks           int64 // tasks of which something was given up
	Phases          map[StartPhase]timing.Reading
}

// Read returns what was counted until now.
func (c *Counts) Read() Stats {
	s := Stats{
		Starts:          c.starts.Load(),
		StartFailures:   c.startFailures.Load(),
		Restarts:        c.restarts.Load(),
		Restores:        c.restores.Load(),
		Lost:            c.lost.Load(),
		Exits:           c.exits.Load(),
		Kills:           c.kills.Load(),
		ForcedKills:     c.forcedKills.Load(),
		RemovalFailures: c.removalFailures.Load(),
		Leaks:           c.leaks.Load(),
		Phases:          make(map[StartPhase]timing.Reading, len(c.phases)),
	}
	for phase, h := range c.phases {
		s.Phases[phase] = h.Read()
	}
	return s
}
