package pool

import (
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// keptDurations is how many of the latest a distribution is of: enough for a
// p99, few enough to be sorted when somebody asks.
const keptDurations = 1000

// durations keeps the latest of a kind. Its methods are safe for concurrent
// use.
type durations struct {
	mu    sync.Mutex
	all   int64           // ever added
	ring  []time.Duration // the latest
	write int             // where the next goes, once the ring is full
}

func (d *durations) add(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all++
	if len(d.ring) < keptDurations {
		d.ring = append(d.ring, took)
		return
	}
	d.ring[d.write] = took
	d.write = (d.write + 1) % keptDurations
}

func (d *durations) distribution() runtime.Distribution {
	d.mu.Lock()
	sorted, all := slices.Clone(d.ring), d.all
	d.mu.Unlock()
	if len(sorted) == 0 {
		return runtime.Distribution{}
	}
	slices.Sort(sorted)
	at := func(percent int) time.Duration { return sorted[(len(sorted)-1)*percent/100] } // nearest rank, rounded down
	return runtime.Distribution{Count: all, Min: sorted[0], P50: at(50), P90: at(90), P99: at(99), Max: sorted[len(sorted)-1]}
}
