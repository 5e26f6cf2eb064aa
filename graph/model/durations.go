package model

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// Durations are a runtime.Distribution in milliseconds.
type Durations struct {
	Count                             int64
	MinMs, P50Ms, P90Ms, P99Ms, MaxMs float64
}

// NewDurations converts a distribution.
func NewDurations(d runtime.Distribution) Durations {
	return Durations{
		Count: d.Count, MinMs: Milliseconds(d.Min), P50Ms: Milliseconds(d.P50),
		P90Ms: Milliseconds(d.P90), P99Ms: Milliseconds(d.P99), MaxMs: Milliseconds(d.Max),
	}
}

// Milliseconds converts a duration.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
