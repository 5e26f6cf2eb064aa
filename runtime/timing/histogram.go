// Package timing measures durations. A Histogram counts in buckets with atomics only, for metrics
// and hot paths. A Recent keeps the latest durations, for the exact quantiles of the API.
package timing

import (
	"slices"
	"sync/atomic"
	"time"
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
