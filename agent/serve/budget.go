package serve

import (
	"sync"
	"sync/atomic"
)

// How much unacknowledged output is held, in bytes of frames.
const (
	maxHeld      = 1 << 20 // per execution
	maxHeldInAll = 8 << 20 // per server
)

// A budget bounds the output that executions hold. An execution that holds none may always
// hold the frames of one read, so that none can starve the others.
type budget struct {
	wide atomic.Int32 // how many outlets have more than firstBuffer

	mu    sync.Mutex // guards what is below, and held and given of all shares
	freed *sync.Cond
	held  int64
}

// A share is what one execution holds of the budget.
type share struct {
	held  int64
	given bool // up: what comes is discarded
}

func newBudget() *budget {
	b := &budget{}
	b.freed = sync.NewCond(&b.mu)
	return b
}

// take waits until s may hold n more bytes. It returns false once s was given
// up.
func (b *budget) take(s *share, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !s.given && s.held > 0 && (s.held+n > maxHeld || b.held+n > maxHeldInAll) {
		b.freed.Wait()
	}
	if s.given {
		return false
	}
	s.held += n
	b.held += n
	return true
}

func (b *budget) free(s *share, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n == 0 || s.given {
		return
	}
	s.held -= n
	b.held -= n
	b.freed.Broadcast()
}

// giveUp frees all that s holds, now and later, and ends its waits.
func (b *budget) giveUp(s *share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= s.held
	s.held = 0
	s.given = true
	b.freed.Broadcast()
}
