package files

import (
	"context"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// places bound the searches that run at once, and those in one runner: slow runners take few of all places.
type places struct {
	all chan struct{}

	mu sync.Mutex
	of map[runtime.RunnerID]*runnerPlaces
}

type runnerPlaces struct {
	taken chan struct{}
	users int // that hold or await one; guarded by places.mu
}

// enter waits for a place, until leave is called. LIMIT_EXCEEDED: there was none in time.
func (p *places) enter(ctx context.Context, id runtime.RunnerID) (leave func(), err error) {
	ours := p.use(id)
	waiting, cancel := context.WithTimeoutCause(ctx, searchWait, runtime.Errorf(runtime.CodeLimitExceeded, "%d searches of runner %s run: try later", maxSearchesOf, id))
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
	waiting, cancelAll := context.WithTimeoutCause(ctx, searchWait, runtime.Errorf(runtime.CodeLimitExceeded, "%d searches run on this server: try later", maxSearches))
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

func (p *places) unuse(id runtime.RunnerID, ours *runnerPlaces) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ours.users--; ours.users == 0 {
		delete(p.of, id)
	}
}
