package nomad

import (
	"context"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// turns lets only so many jobs be registered at once: those first that a claim
// waits for, then by age.
type turns struct {
	mu                 sync.Mutex // guards what follows
	free               int
	waiting, refilling []chan struct{} // each is closed when its turn has come
}

// take waits for a turn, which release gives back, or until ctx ends.
func (t *turns) take(ctx context.Context, priority runtime.Priority) (release func(), err error) {
	mine := make(chan struct{})
	t.mu.Lock()
	if priority >= runtime.PriorityWaiting {
		t.waiting = append(t.waiting, mine)
	} else {
		t.refilling = append(t.refilling, mine)
	}
	t.next()
	t.mu.Unlock()
	select {
	case <-mine:
		return t.release, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine: // at the same moment
		t.free++
		t.next()
	default:
		is := func(other chan struct{}) bool { return other == mine }
		t.waiting = slices.DeleteFunc(t.waiting, is)
		t.refilling = slices.DeleteFunc(t.refilling, is)
	}
	return nil, context.Cause(ctx)
}

func (t *turns) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.next()
}

// next gives free turns to who waits. The caller holds mu.
func (t *turns) next() {
	for _, from := range []*[]chan struct{}{&t.waiting, &t.refilling} {
		for t.free > 0 && len(*from) > 0 {
			close((*from)[0])
			*from = (*from)[1:]
			t.free--
		}
	}
}
