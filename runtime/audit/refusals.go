package audit

import (
	"sync"

	"golang.org/x/time/rate"
)

// refusals limits the entries about failed operations of each caller. Failed operations count against no
// quota, so a caller could otherwise cause any number of entries.
type refusals struct {
	mu       sync.Mutex // guards byCaller
	byCaller map[string]*rate.Limiter
}

// Limits of the recorded failed operations of one caller, and of the callers remembered.
const (
	refusalsPerSecond = 5
	refusalsBurst     = 50
	mostLimiters      = 10_000
)

// Refusal reports whether to record a caller's failed operation: at most refusalsPerSecond per
// caller, after a burst of refusalsBurst. A token and its grants count as one caller.
func (l *Log) Refusal(caller string) bool {
	r := &l.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := r.byCaller[caller]
	if limit == nil {
		if r.byCaller == nil || len(r.byCaller) >= mostLimiters {
			r.byCaller = map[string]*rate.Limiter{}
		}
		limit = rate.NewLimiter(refusalsPerSecond, refusalsBurst)
		r.byCaller[caller] = limit
	}
	return limit.Allow()
}
