package runner

import (
	"slices"
	"time"

	"github.com/rockpool/rockpool/local/sandbox"
)

// A restartPolicy bounds the restarts of a runner that doesn't start, and counts them.
type restartPolicy struct {
	attempts int           // at most so many restarts within interval
	interval time.Duration // how long a restart counts against attempts
	delay    time.Duration // before a restart
	jitter   float64       // a random share of delay, up to this one, is added, so that runners don't retry together

	restarts []time.Time // within the interval
}

// next returns how long to wait before the restart after a failed attempt, and false if there is
// none. chance is a random number from 0 to 1.
func (p *restartPolicy) next(now time.Time, failed sandbox.Failure, chance float64) (time.Duration, bool) {
	p.restarts = slices.DeleteFunc(p.restarts, func(at time.Time) bool { return now.Sub(at) >= p.interval })
	if failed.Unrecoverable || len(p.restarts) >= p.attempts {
		return 0, false
	}
	p.restarts = append(p.restarts, now)
	return p.delay + time.Duration(chance*p.jitter*float64(p.delay)), true
}
