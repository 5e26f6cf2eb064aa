package serve

import (
	"sync"
	"sync/atomic"
)

// Limits of unacknowledged output, in bytes of frames.
const (
	maxHeld      = 1 << 20 // per execution
	maxHeldInAll = 8 << 20 // per server
)

// A budget bounds the unacknowledged output of all executions. An execution that holds nothing may
// always add the frames of one read, so that no execution can starve the others.
type budget struct {
	wide atomic.Int32 // number of outlets with a buffer larger than firstBuffer

	mu    sync.Mutex // guards the fields below, and all shares
	freed *sync.Cond // signalled when held decreases or a share is given up
	held  int64      // bytes, by all executions
}

// A share is one execution's part of the budget.
type share struct {
	held    int64 // bytes
	givenUp bool  // given up: further output is discarded
}

func newBudget() *budget {
	b := &budget{}
	b.freed = sync.NewCond(&b.mu)
	return b
}

// reserve reserves n bytes for s. It waits until they are free. It returns false if s was given up.
func (b *budget) reserve(s *share, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !s.givenUp && s.held > 0 && (s.held+n > maxHeld || b.held+n > maxHeldInAll) {
		b.freed.Wait()
	}
	if s.givenUp {
		return false
	}
	s.held += n
	b.held += n
	return true
}

// free returns n bytes of s. It does nothing after s was given up, since that freed all of them.
func (b *budget) free(s *share, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n == 0 || s.givenUp {
		return
	}
	s.held -= n
	b.held -= n
	b.freed.Broadcast()
}

// giveUp frees the bytes of s and ends its waits. Later reservations of s fail.
func (b *budget) giveUp(s *share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= s.held
	s.held = 0
	s.givenUp = true
	b.freed.Broadcast()
}
