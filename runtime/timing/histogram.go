// Package timing measures durations. A Histogram counts in buckets with atomics only, for metrics
// and hot paths. A Recent keeps the latest durations, for the exact quantiles of the API.
package timing

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Histogram counts durations. Its methods are safe for concurrent use.
type Histogram struct {
	bounds []time.Duration
	counts []atomic.Int64 // the last one is above all bounds
	sum    atomic.Int64
}

// New returns a Histogram with these ascending upper bounds of its buckets. A last bucket has no bound.
func New(bounds ...time.Duration) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Int64, len(bounds)+1)}
}

// Add counts a duration. A negative one, after the clock was set back, counts as 0.
func (h *Histogram) Add(took time.Duration) {
	took = max(took, 0)
	bucket, _ := slices.BinarySearch(h.bounds, took)
	h.counts[bucket].Add(1)
	h.sum.Add(int64(took))
}

// A Reading contains a Histogram's counts at about one moment.
type Reading struct {
	Bounds []time.Duration
	Counts []int64 // per bucket, not cumulative; the last one has no bound
	Sum    time.Duration
}

// Read returns the present counts.
func (h *Histogram) Read() Reading {
	r := Reading{Bounds: h.bounds, Counts: make([]int64, len(h.counts)), Sum: time.Duration(h.sum.Load())}
	for i := range h.counts {
		r.Counts[i] = h.counts[i].Load()
	}
	return r
}

// Count returns how many durations were counted.
func (r Reading) Count() int64 {
	var all int64
	for _, n := range r.Counts {
		all += n
	}
	return all
}

// kept bounds the durations in a distribution: enough for a p99, few enough to sort for each request.
const kept = 1000

// A Recent keeps the latest durations of one kind. Its methods are safe for concurrent use. The
// zero value is empty.
type Recent struct {
	mu    sync.Mutex      // guards the fields below
	all   int64           // ever added
	ring  []time.Duration // the latest ones
	write int             // index of the next one, once the ring is full
}

// Add adds a duration.
func (r *Recent) Add(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all++
	if len(r.ring) < kept {
		r.ring = append(r.ring, took)
		return
	}
	r.ring[r.write] = took
	r.write = (r.write + 1) % kept
}

// Distribution summarizes the durations.
func (r *Recent) Distribution() runtime.Distribution {
	r.mu.Lock()
	sorted, all := slices.Clone(r.ring), r.all
	r.mu.Unlock()
	if len(sorted) == 0 {
		return runtime.Distribution{}
	}
	slices.Sort(sorted)
	at := func(percent int) time.Duration { return sorted[(len(sorted)-1)*percent/100] } // nearest rank, rounded down
	return runtime.Distribution{Count: all, Min: sorted[0], P50: at(50), P90: at(90), P99: at(99), Max: sorted[len(sorted)-1]}
}
