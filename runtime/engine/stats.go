package engine

import (
	"cmp"
	"slices"
	"sync/atomic"

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
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Unfinished = len(e.sessions)
	return s
}

func (e *Engine) poolStats() []PoolStats {
	e.mu.Lock()
	pools := make([]*pool.Pool, 0, len(e.pools))
	for _, p := range e.pools {
		pools = append(pools, p)
	}
	e.mu.Unlock()
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
