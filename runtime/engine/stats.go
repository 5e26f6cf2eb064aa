package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/timing"
)

// Stats count what an engine has done since it was made, and say what it has
// now.
type Stats struct {
	Claims map[runtime.EnvironmentID]ClaimStats // with "" those for environments that there aren't
	Pools  []PoolStats                          // sorted by environment

	Started    int64                     // executions that were recorded
	Resumed    int64                     // executions of an earlier server that go on
	Finished   map[runtime.Outcome]int64 // executions, of which the end was stored
	Unfinished int                       // executions now
	Collected  int64                     // executions that were forgotten
	Starting   timing.Reading            // from an execution's record to its command's start

	Output     int64 // bytes that were written to logs
	OutputLost int64 // bytes that could not be
	Kept       int64 // bytes that executions and their output take
	KeepLimit  int64 // that Kept may come to; 0: nobody counts it

	Watchers map[WatchKind]int64 // now
	Skipped  int                 // what could not be restored
}

// ClaimStats count the claims of one environment.
type ClaimStats struct {
	Results map[string]int64 // by ClaimMade, ClaimLeft, or the code of an error
	Took    timing.Reading   // those that were made, waiting included
}

// PoolStats are a pool as it is now.
type PoolStats struct {
	runtime.PoolStatus
	Alert bool // one stands
}

// Stats returns what was counted up to now. It waits for no pool.
func (e *Engine) Stats() Stats {
	c := e.counts
	s := Stats{
		Claims: map[runtime.EnvironmentID]ClaimStats{"": c.strange.read()}, Pools: e.poolStats(),
		Started: c.started.Load(), Resumed: c.resumed.Load(), Finished: loadAll(c.finished), Starting: c.starting.Read(),
		Watchers: loadAll(c.watchers), Skipped: len(e.skipped()),
	}
	logs := e.logs.Figures()
	s.Collected, s.Output, s.OutputLost, s.Kept, s.KeepLimit = logs.Collected, logs.Written, logs.Lost, logs.Kept, logs.Limit
	for id, of := range c.claims.Range {
		s.Claims[id.(runtime.EnvironmentID)] = of.(*claimCounts).read()
	}
	s.Unfinished = e.sessions.len()
	return s
}

func (e *Engine) poolStats() []PoolStats {
	pools, _ := e.catalog.allPools()
	all := make([]PoolStats, len(pools))
	for i, p := range pools {
		alert, _ := p.WatchAlert()
		all[i] = PoolStats{p.Status(), alert.Standing()}
	}
	slices.SortFunc(all, func(a, b PoolStats) int { return cmp.Compare(a.EnvironmentID, b.EnvironmentID) })
	return all
}

func (c *claimCounts) read() ClaimStats { return ClaimStats{loadAll(c.results), c.took.Read()} }

func loadAll[K comparable](counters map[K]*atomic.Int64) map[K]int64 {
	all := make(map[K]int64, len(counters))
	for key, n := range counters {
		all[key] = n.Load()
	}
	return all
}

// counts is what an engine counts, with atomics: it waits for nobody.
type counts struct {
	started, resumed atomic.Int64 // executions
	finished         map[runtime.Outcome]*atomic.Int64
	starting         *timing.Histogram
	watchers         map[WatchKind]*atomic.Int64

	claims  sync.Map     // runtime.EnvironmentID → *claimCounts, while there is a pool
	strange *claimCounts // of environments that there aren't
}

// claimCounts are of one environment.
type claimCounts struct {
	results map[string]*atomic.Int64
	took    *timing.Histogram
}

// A WatchKind is what is watched.
type WatchKind string

// The kinds.
const (
	WatchExecution   WatchKind = "EXECUTION"
	WatchRunners     WatchKind = "RUNNERS"
	WatchPools       WatchKind = "POOLS"
	WatchPoolAlerts  WatchKind = "POOL_ALERTS"
	WatchTickets     WatchKind = "TICKETS"
	WatchFileChanges WatchKind = "FILES"
)

// What becomes of a claim, beside the code of an error.
const (
	ClaimMade = "CLAIMED"
	ClaimLeft = "CANCELLED" // the caller didn't wait for the answer
)

func newCounts() *counts {
	const us, ms = time.Microsecond, time.Millisecond
	return &counts{
		finished: counters(runtime.Outcomes()...),
		starting: timing.New(250*us, 500*us, ms, 2500*us, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 500*ms, 1000*ms, 2500*ms, 5000*ms, 10000*ms),
		watchers: counters(WatchExecution, WatchRunners, WatchPools, WatchPoolAlerts, WatchTickets, WatchFileChanges),
		strange:  newClaimCounts(),
	}
}

func newClaimCounts() *claimCounts {
	const us, ms = time.Microsecond, time.Millisecond
	results := counters(ClaimMade, ClaimLeft)
	for _, code := range runtime.Codes() {
		results[string(code)] = &atomic.Int64{}
	}
	return &claimCounts{results, timing.New(100*us, 250*us, 500*us, ms, 2500*us, 5*ms, 10*ms, 50*ms, 100*ms, 500*ms, 1000*ms, 5000*ms, 30000*ms, 120000*ms)}
}

func counters[K comparable](keys ...K) map[K]*atomic.Int64 {
	all := map[K]*atomic.Int64{}
	for _, key := range keys {
		all[key] = &atomic.Int64{}
	}
	return all
}

// claimed counts a claim that began at a time and ends now.
func (c *counts) claimed(id runtime.EnvironmentID, began time.Time, err error) {
	of := c.strange
	if known, ok := c.claims.Load(id); ok {
		of = known.(*claimCounts)
	}
	result := ClaimMade
	switch {
	case err == nil:
		of.took.Add(time.Since(began))
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, pool.ErrUnwanted):
		result = ClaimLeft
	default:
		result = string(runtime.CodeOf(err))
	}
	of.results[result].Add(1)
}

// Watching is for a door through which somebody watches: until left is called.
func (e *Engine) Watching(kind WatchKind) (left func()) {
	e.counts.watchers[kind].Add(1)
	return func() { e.counts.watchers[kind].Add(-1) }
}
