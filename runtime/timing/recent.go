package timing

import (
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

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
