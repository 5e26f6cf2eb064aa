package quota

import "time"

// minute is the length of the window of claims.
const minute = 60 * time.Second

// mostUnlimited bounds the remembered claims of a tenant without a limit, to 800 kB. Its usage
// shows no more.
const mostUnlimited = 100_000

// A window contains the times of the claims of the last 60 seconds, oldest first, in 8 bytes each.
// There are at most as many as the limit allows, or mostUnlimited.
type window struct {
	times []time.Duration
	old   int // number of first times that have been dropped
}

// len returns the number of claims in the window, including those that forget would drop now.
func (w *window) len() int64 { return int64(len(w.times) - w.old) }

// forget drops claims that are 60 seconds old.
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

func (w *window) add(now time.Duration, limit int64) {
	if limit == unlimited && w.len() == mostUnlimited {
		w.old++
		w.forget(now)
	}
	w.times = append(w.times, now)
}

// free returns the time until fewer than limit claims are younger than 60 seconds; 0: never.
func (w *window) free(now time.Duration, limit int64) time.Duration {
	if limit == 0 {
		return 0
	}
	return w.times[int64(len(w.times))-limit] + minute - now
}
