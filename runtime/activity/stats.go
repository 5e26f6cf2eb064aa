package activity

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/timing"
)

// Stats are counters since the server began, and gauges of the present.
type Stats struct {
	Claims map[runtime.EnvironmentID]ClaimStats // by environment; "" means environments that don't exist
	Pools  []PoolStats                          // ordered by environment

	Started    int64                     // executions recorded
	Resumed    int64                     // executions continued from an earlier server
	Finished   map[runtime.Outcome]int64 // executions whose end was stored
	Unfinished int                       // executions at present
	Collected  int64                     // executions removed by retention
	Starting   timing.Reading            // from an execution's record to its command's start

	Output     int64 // bytes written to logs
	OutputLost int64 // bytes that could not be written
	Kept       int64 // bytes that executions and their output use
	KeepLimit  int64 // limit of Kept; 0 means none

	Watchers map[WatchKind]int64 // at present
	Skipped  int                 // what could not be restored
}

// ClaimStats count the claims of one environment.
type ClaimStats struct {
	Results map[string]int64 // by ClaimMade, ClaimLeft, or the code of an error
	Took    timing.Reading   // of successful claims, including their wait
}

// PoolStats are the state of a pool at present.
type PoolStats struct {
	runtime.PoolStatus
	Alert bool // an alert stands
}

// Read adds the present counts to s.
func (c *Counts) Read(s *Stats) {
	s.Claims = map[runtime.EnvironmentID]ClaimStats{"": c.strange.read()}
	for id, of := range c.claims.Range {
		s.Claims[id.(runtime.EnvironmentID)] = of.(*claimCounts).read()
	}
	s.Started, s.Resumed, s.Finished, s.Starting, s.Watchers = c.Started.Load(), c.Resumed.Load(), loadAll(c.finished), c.Starting.Read(), loadAll(c.watchers)
}

func (c *claimCounts) read() ClaimStats { return ClaimStats{loadAll(c.results), c.took.Read()} }

func loadAll[K comparable](counters map[K]*atomic.Int64) map[K]int64 {
	all := make(map[K]int64, len(counters))
	for key, n := range counters {
		all[key] = n.Load()
	}
	return all
}

// Counts are the counters of one server. They are atomic, so that readers never block. Make them with
// NewCounts.
type Counts struct {
	Started, Resumed atomic.Int64      // executions
	Starting         *timing.Histogram // from an execution's record to its command's start
	finished         map[runtime.Outcome]*atomic.Int64
	watchers         map[WatchKind]*atomic.Int64

	claims  sync.Map     // runtime.EnvironmentID → *claimCounts, while there is a pool
	strange *claimCounts // of environments that don't exist
}

type claimCounts struct {
	results map[string]*atomic.Int64
	took    *timing.Histogram
}

// A WatchKind is the kind of a subscription.
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

// Results of a claim, in addition to error codes.
const (
	ClaimMade = "CLAIMED"
	ClaimLeft = "CANCELLED" // the caller gave up
)

// NewCounts returns counters that are zero.
func NewCounts() *Counts {
	const us, ms = time.Microsecond, time.Millisecond
	return &Counts{
		finished: counters(runtime.Outcomes()...),
		Starting: timing.New(250*us, 500*us, ms, 2500*us, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 500*ms, 1000*ms, 2500*ms, 5000*ms, 10000*ms),
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

// Claimed counts a claim that began at a time and ends now.
func (c *Counts) Claimed(id runtime.EnvironmentID, began time.Time, err error) {
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

// Finished counts an execution that has ended.
func (c *Counts) Finished(outcome runtime.Outcome) { c.finished[outcome].Add(1) }

// OpenPool begins the counters of an environment's claims, and ClosePool removes them.
func (c *Counts) OpenPool(id runtime.EnvironmentID) { c.claims.LoadOrStore(id, newClaimCounts()) }

// ClosePool forgets the claims of a deleted pool.
func (c *Counts) ClosePool(id runtime.EnvironmentID) { c.claims.Delete(id) }

// Subscription counts a subscription until left is called.
func (c *Counts) Subscription(kind WatchKind) (left func()) {
	c.watchers[kind].Add(1)
	return func() { c.watchers[kind].Add(-1) }
}
