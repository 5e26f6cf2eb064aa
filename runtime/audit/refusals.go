package audit

import (
	"sync"

	"golang.org/x/time/rate"
)

// refusals bounds how many entries about operations that failed each caller makes. A caller can cause any number
// of them, since they count towards no quota.
type refusals struct {
	mu       sync.Mutex // guards byCaller
	byCaller map[string]*rate.Limiter
}

// How many failed operations of one caller are recorded in a second, and how many callers are remembered.
const (
	refusalsPerSecond = 5
	refusalsBurst     = 50
	mostLimiters      = 10_000
)

// Refusal reports whether to record a caller's operation that failed: at most refusalsPerSecond of each
// caller are. A token and its grants are one caller.
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
