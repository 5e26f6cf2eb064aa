package pool

import (
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
)

// keptSamples is the number of samples in an hour; they use 29 KB.
const keptSamples = int(time.Hour / runtime.SampleEvery)

// history counts a pool's claims and keeps its samples. Its methods are safe for concurrent use.
type history struct {
	took timing.Recent // by claims that got a runner

	mu                    sync.Mutex // guards the fields below
	claimed, warm, failed int64
	samples               []runtime.PoolSample // the latest keptSamples, oldest first
	seenClaimed, seenWarm int64                // counts at the last sample
}

func (h *history) claim(took time.Duration, warm bool, err error) {
	if err == nil {
		h.took.Add(took)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.failed++
		return
	case warm:
		h.warm++
	}
	h.claimed++
}

func (h *history) sample(now time.Time, status runtime.PoolStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.samples) == keptSamples {
		h.samples = append(h.samples[:0], h.samples[1:]...)
	}
	h.samples = append(h.samples, runtime.PoolSample{
		At: now, Idle: status.Idle, Claimed: status.Claimed, Starting: status.Starting, Waiting: status.Waiting,
		Claims: int(h.claimed - h.seenClaimed), Warm: int(h.warm - h.seenWarm),
	})
	h.seenClaimed, h.seenWarm = h.claimed, h.warm
}

// Sample records the pool's present state in its history. Call it every runtime.SampleEvery.
func (p *Pool) Sample(now time.Time) { p.history.sample(now, p.Status()) }

// History returns the samples of the last hour, oldest first.
func (p *Pool) History() []runtime.PoolSample {
	p.history.mu.Lock()
	defer p.history.mu.Unlock()
	return append([]runtime.PoolSample{}, p.history.samples...)
}

// ClaimStats returns the counters of the pool's claims since it was made.
func (p *Pool) ClaimStats() runtime.ClaimStats {
	h := &p.history
	stats := runtime.ClaimStats{Took: h.took.Distribution()}
	h.mu.Lock()
	defer h.mu.Unlock()
	stats.Claimed, stats.Warm, stats.Failed = h.claimed, h.warm, h.failed
	return stats
}
