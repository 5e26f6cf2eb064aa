package engine

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A RunnerEvent is a runner as it was at a moment.
type RunnerEvent struct {
	Runner runtime.Runner
	At     time.Time
}

// WatchRunners sends each runner that is there, then each change of a state,
// with GONE as a runner's last; all, or those of one environment. A slow
// receiver gets only the latest of each runner, and none of those that came and
// went meanwhile: what waits for it is bounded by the number of runners. None is
// sent as it was sent before. The channel is closed when ctx ends, and that of
// one environment after its deletion, with its last runner's GONE.
func (e *Engine) WatchRunners(ctx context.Context, id runtime.EnvironmentID) (<-chan RunnerEvent, error) {
	var ended <-chan struct{} // of all environments: never
	if id != "" {
		p, err := e.pool(id)
		if err != nil {
			return nil, err
		}
		ended = p.Closed()
	}
	w := newRunnerWatcher(id)
	e.runnerFeed.add(w, func(put func(runtime.Runner)) {
		for _, r := range e.Runners(RunnerFilter{EnvironmentID: id}) {
			put(r)
		}
	})
	out := make(chan RunnerEvent)
	err := e.Go(ctx, func(ctx context.Context) {
		defer close(out)
		defer e.Watching(WatchRunners)()
		defer e.runnerFeed.remove(w)
		w.send(ctx, ended, out)
	})
	if err != nil {
		e.runnerFeed.remove(w)
	}
	return out, err
}

// A runnerFeed tells watchers of the runners' changes.
type runnerFeed struct {
	mu       sync.Mutex // guards watchers, so that who comes misses nothing
	watchers map[*runnerWatcher]bool
}

// add lets w follow, after it was given what is there.
func (f *runnerFeed) add(w *runnerWatcher, snapshot func(put func(runtime.Runner))) {
	f.mu.Lock()
	defer f.mu.Unlock()
	snapshot(func(r runtime.Runner) { w.put(RunnerEvent{r, time.Now()}, false) })
	f.watchers[w] = true
}

func (f *runnerFeed) remove(w *runnerWatcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
}

// tell is called after Runners shows the change.
func (f *runnerFeed) tell(r runtime.Runner, isNew bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		if w.environment == "" || w.environment == r.Environment.ID {
			w.put(RunnerEvent{r, time.Now()}, isNew)
		}
	}
}

// A runnerWatcher is one receiver and what waits for it.
type runnerWatcher struct {
	environment runtime.EnvironmentID
	wake        chan struct{} // capacity 1: something waits

	mu      sync.Mutex // guards what follows
	queue   list.List  // of *waitingEvent, in the order in which they are to go
	waiting map[runtime.RunnerID]*list.Element
	told    map[runtime.RunnerID]runnerLook // what the receiver knows of those that aren't gone
}

// A runnerLook is what a watcher is told changes of.
type runnerLook struct {
	state   runtime.RunnerState
	message string
}

type waitingEvent struct {
	RunnerEvent
	isNew bool // the receiver has never heard of the runner
}

func newRunnerWatcher(id runtime.EnvironmentID) *runnerWatcher {
	return &runnerWatcher{
		environment: id, wake: make(chan struct{}, 1),
		waiting: map[runtime.RunnerID]*list.Element{}, told: map[runtime.RunnerID]runnerLook{},
	}
}

func (w *runnerWatcher) put(event RunnerEvent, isNew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.waiting[event.Runner.ID]; old != nil {
		isNew = old.Value.(*waitingEvent).isNew
		w.queue.Remove(old)
		delete(w.waiting, event.Runner.ID)
	}
	if isNew && event.Runner.State == runtime.RunnerGone {
		return
	}
	w.waiting[event.Runner.ID] = w.queue.PushBack(&waitingEvent{event, isNew})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns the next event that says something new.
func (w *runnerWatcher) take() (RunnerEvent, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		first := w.queue.Front()
		if first == nil {
			return RunnerEvent{}, false
		}
		event := w.queue.Remove(first).(*waitingEvent).RunnerEvent
		r := event.Runner
		delete(w.waiting, r.ID)
		look := runnerLook{r.State, r.Message}
		if old, known := w.told[r.ID]; known && old == look {
			continue
		}
		w.told[r.ID] = look
		if r.State == runtime.RunnerGone {
			delete(w.told, r.ID)
		}
		return event, true
	}
}

// send sends until ctx ends, or all that was put before ended was closed is
// sent.
func (w *runnerWatcher) send(ctx context.Context, ended <-chan struct{}, out chan<- RunnerEvent) {
	for {
		event, ok := w.take()
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ended:
				if event, ok = w.take(); !ok {
					return
				}
			case <-ctx.Done():
				return
			}
		}
		select {
		case out <- event:
		case <-ctx.Done():
			return
		}
	}
}
