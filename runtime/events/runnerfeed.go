package events

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// A RunnerEvent is the state of a runner at a moment.
type RunnerEvent struct {
	Runner runtime.Runner
	At     time.Time
}

// A RunnerFeed reports the changes of runners to watchers. Each watcher gets the changes of a runner in order; a
// slow one gets only the latest of each. Its methods are safe for concurrent use.
type RunnerFeed struct {
	mu       sync.Mutex // guards watchers; also held during a snapshot, so that no change is missed
	watchers map[*RunnerWatcher]bool
}

// NewRunnerFeed returns a feed without watchers.
func NewRunnerFeed() *RunnerFeed { return &RunnerFeed{watchers: map[*RunnerWatcher]bool{}} }

// Watch returns a new watcher of the runners of an environment, or of all for "", as far as it sees
// them. The runners that snapshot passes to put come first. Call Remove when done.
func (f *RunnerFeed) Watch(id runtime.EnvironmentID, sees func(runtime.Runner) bool, snapshot func(put func(runtime.Runner))) *RunnerWatcher {
	w := newWatcher(id)
	w.sees = sees
	f.mu.Lock()
	defer f.mu.Unlock()
	snapshot(func(r runtime.Runner) { w.put(RunnerEvent{r, time.Now()}, false) })
	f.watchers[w] = true
	return w
}

// Remove ends reports to a watcher.
func (f *RunnerFeed) Remove(w *RunnerWatcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
}

// Report reports the present state of a runner. isNew says that it was never reported before. A
// snapshot that begins after the call must contain the same state.
func (f *RunnerFeed) Report(r runtime.Runner, isNew bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		if w.environment == "" || w.environment == r.Environment.ID {
			w.put(RunnerEvent{r, time.Now()}, isNew)
		}
	}
}

// A RunnerWatcher is one receiver with its queue of events.
type RunnerWatcher struct {
	environment runtime.EnvironmentID
	sees        func(runtime.Runner) bool // whether the caller may see the runner
	wake        chan struct{}             // capacity 1; signals that the queue isn't empty

	mu      sync.Mutex // guards the fields below
	queue   list.List  // of *waitingEvent, in order of delivery
	waiting map[runtime.RunnerID]*list.Element
	sent    map[runtime.RunnerID]report // what was last sent about runners that aren't gone
}

// A report is the part of a runner's state whose changes are reported.
type report struct {
	state   runtime.RunnerState
	message string
}

type waitingEvent struct {
	RunnerEvent
	isNew bool // nothing was sent about the runner before
}

func newWatcher(id runtime.EnvironmentID) *RunnerWatcher {
	return &RunnerWatcher{
		environment: id, wake: make(chan struct{}, 1),
		waiting: map[runtime.RunnerID]*list.Element{}, sent: map[runtime.RunnerID]report{},
	}
}

// put queues an event for the watcher. It replaces the runner's event that still waits, so the
// queue holds at most one per runner. A runner that the caller may no longer see is reported as
// handed over.
func (w *RunnerWatcher) put(event RunnerEvent, isNew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.waiting[event.Runner.ID]
	if !w.sees(event.Runner) {
		if _, known := w.sent[event.Runner.ID]; !known && old == nil {
			return
		}
		event.Runner = handedOver(event.Runner)
	}
	if old != nil {
		isNew = old.Value.(*waitingEvent).isNew
		w.queue.Remove(old)
		delete(w.waiting, event.Runner.ID)
	}
	// The receiver never heard of this runner.
	if isNew && event.Runner.State == runtime.RunnerGone {
		return
	}
	w.waiting[event.Runner.ID] = w.queue.PushBack(&waitingEvent{event, isNew})
	syncs.Offer(w.wake, struct{}{})
}

// handedOver returns the event for a receiver that saw a runner which another tenant has claimed
// now: for this receiver the runner is gone.
func handedOver(r runtime.Runner) runtime.Runner {
	return runtime.Runner{ID: r.ID, Environment: r.Environment, State: runtime.RunnerGone, Message: "another tenant claimed it", CreatedAt: r.CreatedAt}
}

// next returns the next event that differs from the last one sent about its runner.
func (w *RunnerWatcher) next() (RunnerEvent, bool) {
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
		latest := report{r.State, r.Message}
		if old, known := w.sent[r.ID]; known && old == latest {
			continue
		}
		w.sent[r.ID] = latest
		if r.State == runtime.RunnerGone {
			delete(w.sent, r.ID)
		}
		return event, true
	}
}

// Send sends events until ctx ends, or until all events reported before ended was closed are sent.
// Call it once.
func (w *RunnerWatcher) Send(ctx context.Context, ended <-chan struct{}, out chan<- RunnerEvent) {
	for {
		event, ok := w.next()
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ended:
				if event, ok = w.next(); !ok {
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
