package files

import (
	"context"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// places limits concurrent searches, in total and per runner, so that slow runners occupy few of
// the total.
type places struct {
	all chan struct{} // holds a token for each running search

	mu sync.Mutex // guards of
	of map[runtime.RunnerID]*runnerPlaces
}

// runnerPlaces limit the searches in one runner.
type runnerPlaces struct {
	taken chan struct{} // holds a token for each search in the runner
	users int           // searches that hold or await a place; guarded by places.mu
}

// enter waits for a place, which is held until leave is called. It returns LIMIT_EXCEEDED after
// searchWait.
func (p *places) enter(ctx context.Context, id runtime.RunnerID) (leave func(), err error) {
	ours := p.use(id)
	waiting, cancel := context.WithTimeoutCause(ctx, searchWait, runtime.Errorf(runtime.CodeLimitExceeded, "%d searches are already running in runner %s: try again later", maxSearchesOf, id))
	defer cancel()
	select {
	case ours.taken <- struct{}{}:
	case <-waiting.Done():
		p.unuse(id, ours)
		return nil, context.Cause(waiting)
	}
	leaveOurs := func() {
		<-ours.taken
		p.unuse(id, ours)
	}
	waiting, cancelAll := context.WithTimeoutCause(ctx, searchWait, runtime.Errorf(runtime.CodeLimitExceeded, "%d searches are already running on this server: try again later", maxSearches))
	defer cancelAll()
	select {
	case p.all <- struct{}{}:
	case <-waiting.Done():
		leaveOurs()
		return nil, context.Cause(waiting)
	}
	return func() {
		<-p.all
		leaveOurs()
	}, nil
}

// use returns the runner's places, and counts the caller as one of their users until unuse.
func (p *places) use(id runtime.RunnerID) *runnerPlaces {
	p.mu.Lock()
	defer p.mu.Unlock()
	ours := p.of[id]
	if ours == nil {
		if p.of == nil {
			p.of = map[runtime.RunnerID]*runnerPlaces{}
		}
		ours = &runnerPlaces{taken: make(chan struct{}, maxSearchesOf)}
		p.of[id] = ours
	}
	ours.users++
	return ours
}

// unuse ends a use. The last one deletes the runner's places.
func (p *places) unuse(id runtime.RunnerID, ours *runnerPlaces) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ours.users--; ours.users == 0 {
		delete(p.of, id)
	}
}
