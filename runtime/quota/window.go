package quota

import "time"

const minute = 60 * time.Second

// mostUnlimited is how many claims of a tenant without a limit are remembered: 800 kB. Its usage shows no more.
const mostUnlimited = 100_000

// A window has the times of the claims of the last 60 seconds, oldest first: 8 bytes each, and at most as many as
// the limit allows, or mostUnlimited.
type window struct {
	times []time.Duration
	old   int // so many of times, the first ones, are forgotten
}

func (w *window) len() int64 { return int64(len(w.times) - w.old) }

// forget forgets claims that are 60 seconds old.
func (w *window) forget(now time.Duration) {
	for w.old < len(w.times) && now-w.times[w.old] >= minute {
		w.old++
	}
	switch {
	case w.old == len(w.times):
		w.times, w.old = nil, 0
	case w.old > len(w.times)/2: // each time is moved once on average
		w.times = append(make([]time.Duration, 0, len(w.times)), w.times[w.old:]...)
		w.old = 0
	}
}

// add remembers a claim.
func (w *window) add(now time.Duration, limit int64) {
	if limit == unlimited && w.len() == mostUnlimited {
		w.old++
		w.forget(now)
	}
	w.times = append(w.times, now)
}

// free returns how long it takes until fewer than limit are younger than 60 seconds; 0: for ever.
func (w *window) free(now time.Duration, limit int64) time.Duration {
	if limit == 0 {
		return 0
	}
	return w.times[int64(len(w.times))-limit] + minute - now
}
