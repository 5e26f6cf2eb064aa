package nomad

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A pace says when to try whether a runner's agent answers. No event says it:
// Nomad says a second late that a task runs. A try costs 4 ms of CPU time, ours
// and Nomad's, which runners that start together take from each other; so the
// first one is made after half the time that the quickest of the last starts
// took, and each pause is a sixth of the time that has passed. The zero value is
// ready.
type pace struct {
	mu     sync.Mutex // guards latest
	latest []time.Duration
}

const (
	paceOf       = 4                      // so many of the latest starts count
	firstTry     = 20 * time.Millisecond  // where nothing is known
	lastFirstTry = 2 * time.Second        // the starts before may have had to pull their image
	leastPause   = 10 * time.Millisecond  // between tries
	mostPause    = 500 * time.Millisecond // likewise: an image may take minutes
)

// first is how long after its allocation is known a runner is tried first.
func (p *pace) first() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.latest) == 0 {
		return firstTry
	}
	return min(slices.Min(p.latest)/2, lastFirstTry)
}

// next is the pause before the next try of one that was first tried so long
// ago, with jitter: those that started together needn't be tried together.
func (p *pace) next(since time.Duration) time.Duration {
	pause := min(max(since/6, leastPause), mostPause)
	return pause*3/4 + rand.N(pause/2)
}

// took notes that a runner's agent answered so long after its allocation was
// known.
func (p *pace) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = append(p.latest, d)
	p.latest = p.latest[max(0, len(p.latest)-paceOf):]
}
