package nomad

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A pace decides when to try whether a runner's agent answers. No event reports that, and Nomad
// reports a running task a second late. A try costs 4 ms of CPU time, ours and Nomad's, which
// concurrent starts take from each other. So the first try comes after half the time of the fastest
// recent start, and each pause is a sixth of the time that has passed. The zero value is ready. Its
// methods are safe for concurrent use.
type pace struct {
	mu     sync.Mutex // guards latest
	latest []time.Duration
}

// The parameters of a pace.
const (
	paceOf       = 4                      // number of recent starts that count
	firstTry     = 20 * time.Millisecond  // without any recent start
	lastFirstTry = 2 * time.Second        // the recent starts may have pulled their image
	leastPause   = 10 * time.Millisecond  // between tries
	mostPause    = 500 * time.Millisecond // between tries: pulling an image may take minutes
)

// first returns the delay of the first try after a runner's allocation is known.
func (p *pace) first() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.latest) == 0 {
		return firstTry
	}
	return min(slices.Min(p.latest)/2, lastFirstTry)
}

// next returns the pause before the next try, given the time since the first one. It has jitter, so
// that runners that started together aren't tried together.
func (p *pace) next(since time.Duration) time.Duration {
	pause := min(max(since/6, leastPause), mostPause)
	return pause*3/4 + rand.N(pause/2)
}

// took records the time between a known allocation and its agent's answer.
func (p *pace) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = append(p.latest, d)
	p.latest = p.latest[max(0, len(p.latest)-paceOf):]
}
