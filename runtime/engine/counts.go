package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

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
	WatchExecution  WatchKind = "EXECUTION"
	WatchRunners    WatchKind = "RUNNERS"
	WatchPools      WatchKind = "POOLS"
	WatchPoolAlerts WatchKind = "POOL_ALERTS"
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
		watchers: counters(WatchExecution, WatchRunners, WatchPools, WatchPoolAlerts),
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
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
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
