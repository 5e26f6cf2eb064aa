// Package timing counts how long things took. A Histogram counts in buckets, with atomics
// alone, for metrics and hot paths; a Recent keeps the latest durations as they are, for
// the exact quantiles that the API promises.
package timing

import (
	"slices"
	"sync/atomic"
	"time"
)

// A Histogram counts durations. Its methods are safe for concurrent use.
type Histogram struct {
	bounds []time.Duration
	counts []atomic.Int64 // one more than bounds: above all of them
	sum    atomic.Int64
}

// New returns a Histogram with these upper bounds of its buckets, which rise.
// A last bucket has none.
func New(bounds ...time.Duration) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Int64, len(bounds)+1)}
}

// Add counts a duration; a negative one, of a clock that was set back, as 0.
func (h *Histogram) Add(took time.Duration) {
	took = max(took, 0)
	bucket, _ := slices.BinarySearch(h.bounds, took)
	h.counts[bucket].Add(1)
	h.sum.Add(int64(took))
}

// A Reading is what a Histogram had counted at about one moment.
type Reading struct {
	Bounds []time.Duration
	Counts []int64 // of each bucket alone, the last without a bound
	Sum    time.Duration
}

// Read returns what was counted until now.
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
