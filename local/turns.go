package local

import (
	"context"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// turns lets only so many runners be started at once: those first that a claim
// waits for, then one of each environment, then by age. So an environment's
// first waits for no more than one start of every other.
type turns struct {
	mu      sync.Mutex // guards what follows
	free    int
	waiting []*turn // the oldest first
	given   int
	last    map[runtime.EnvironmentID]int // of those that wait: given, when it had its last turn
}

type turn struct {
	runner      runtime.RunnerID
	environment runtime.EnvironmentID
	urgent      bool
	come        chan struct{} // closed when it has
}

// take waits for a turn, which release gives back, or until ctx ends. Urgent is
// asked once, before hurry can change it.
func (t *turns) take(ctx context.Context, runner runtime.RunnerID, environment runtime.EnvironmentID, urgent func() bool) (release func(), err error) {
	t.mu.Lock()
	mine := &turn{runner, environment, urgent(), make(chan struct{})}
	t.waiting = append(t.waiting, mine)
	t.next()
	t.mu.Unlock()
	select {
	case <-mine.come:
		return t.release, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine.come: // at the same moment
		t.free++
		t.next()
	default:
		t.remove(mine)
	}
	return nil, context.Cause(ctx)
}

// hurry says whether a claim waits for a runner now.
func (t *turns) hurry(runner runtime.RunnerID, urgent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.waiting {
		if w.runner == runner {
			w.urgent = urgent
		}
	}
}

func (t *turns) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.next()
}

// next gives free turns to who waits. The caller holds mu.
func (t *turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		first := t.waiting[0]
		for _, w := range t.waiting[1:] {
			if w.urgent != first.urgent && w.urgent || w.urgent == first.urgent && t.last[w.environment] < t.last[first.environment] {
				first = w
			}
		}
		t.given++
		if t.last == nil {
			t.last = map[runtime.EnvironmentID]int{}
		}
		t.last[first.environment] = t.given
		t.remove(first)
		t.free--
		close(first.come)
	}
}

// remove takes one out. The caller holds mu.
func (t *turns) remove(one *turn) {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *turn) bool { return w == one })
	if !slices.ContainsFunc(t.waiting, func(w *turn) bool { return w.environment == one.environment }) {
		delete(t.last, one.environment)
	}
}
