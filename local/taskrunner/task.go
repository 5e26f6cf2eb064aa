package taskrunner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

// Config is what a task consists of.
type Config struct {
	Driver Driver
	Hooks  []Hook // in the order in which they start
	Policy Policy
	Kill   Kill
	Keeper Keeper
	Counts *health.TaskCounts // shared by tasks; nil: the task's own

	// Turn blocks until the task may start, because a start is costly for the machine. The caller
	// calls release after the start. It returns an error if ctx ends first.
	Turn func(ctx context.Context) (release func(), err error)
}

// Kill configures how a running task is ended.
type Kill struct {
	Signal  syscall.Signal // sent to the first process
	Timeout time.Duration  // how long to wait before Destroy kills it
	Within  time.Duration  // bounds one try of a removal, and all stop hooks
}

// A Keeper stores a task's state and publishes it. Only the task calls its methods, one at a time.
type Keeper interface {
	// Save stores state durably, then publishes it.
	Save(ctx context.Context, state State) error
	// Note receives every event immediately, before it is saved.
	Note(event Event)
}

// saveWithin bounds one save.
const saveWithin = 15 * time.Second

// A Task is one task. Call New, optionally Restore, then Run or Discard, each once. Stop and Wait
// may be called at any time, concurrently.
type Task struct {
	config Config

	// The goroutine that calls Restore, then Run, owns the fields below.
	state   State
	saved   [sha256.Size]byte // digest of the last saved state
	tracker tracker
	handle  Handle
	dirty   bool // Destroy may have something to remove

	again chan struct{} // a hint, capacity 1: Stop was called
	ended chan struct{} // closed by conclude: the task is dead and removed
	left  chan struct{} // closed by Run when it returns

	mu     sync.Mutex              // guards the fields below
	stop   *End                    // set by the first Stop
	cancel context.CancelCauseFunc // ends Run's live context
	tried  chan struct{}           // closed and replaced when a removal fails
	failed error                   // the error of that removal
}

// errStopped is the cause of Run's live context after Stop.
var errStopped = errors.New("the task was stopped")

// New returns a task in a state: State{Phase: Pending}, or one that was saved, which counts as
// saved.
func New(config Config, state State) *Task {
	if config.Counts == nil {
		config.Counts = NewCounts()
	}
	t := &Task{
		config: config, state: state, saved: state.digest(), tracker: tracker{policy: config.Policy},
		dirty: state.Phase != Pending,
		again: make(chan struct{}, 1), ended: make(chan struct{}), left: make(chan struct{}), tried: make(chan struct{}),
	}
	return t
}

// Stop ends the task, whatever it is doing; after a failed removal it causes one more try. The End
// of the first call counts. Stop doesn't wait.
func (t *Task) Stop(end End) {
	t.mu.Lock()
	if t.stop == nil {
		t.stop = &end
	}
	select {
	case t.again <- struct{}{}: // before cancel: the removal that this Stop causes consumes it
	default:
	}
	cancel := t.cancel
	t.mu.Unlock()
	if cancel != nil {
		cancel(errStopped)
	}
}

// Wait returns nil once the task is dead and removed. It returns an error if the next removal
// fails, if Run returns first because the server stops, or ctx's cause.
func (t *Task) Wait(ctx context.Context) error {
	// removalFailed replaces the channel, so this call reports only a failure from now on.
	t.mu.Lock()
	tried := t.tried
	t.mu.Unlock()
	// The task may have ended before Run returned. Then both channels are closed, and this case can
	// come first.
	select {
	case <-t.ended:
		return nil
	case <-tried:
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.failed
	case <-t.left:
		select {
		case <-t.ended:
			return nil
		default:
			return errors.New("the server is stopping; the next one removes the runner")
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run leads the task until it is dead and removed, or until shutdown ends; then a running task is
// left running. It starts no goroutine.
func (t *Task) Run(shutdown context.Context) {
	defer close(t.left)
	defer t.Close()
	live, cancel := context.WithCancelCause(shutdown)
	defer cancel(nil)
	t.mu.Lock()
	t.cancel = cancel
	// A Stop before Run found no cancel to call.
	if t.stop != nil {
		cancel(errStopped)
	}
	t.mu.Unlock()

	end := t.live(live)
	switch {
	case t.stopped() != nil:
		t.record(runtime.TaskStopping, t.stopped().Message, nil)
		_ = t.move(Stopping, nil) // it must end even if that can't be stored; an event records the error
	case end != nil:
		_ = t.move(Dead, end) // likewise
	default: // the server stops
		// Only a RUNNING task can be restored, so what was begun of this one is removed.
		if t.state.Phase == Pending && t.dirty {
			if err := t.destroy(context.WithoutCancel(shutdown)); err != nil {
				t.note("remove what was begun of it: %v", err)
			}
		}
		return
	}
	t.finish(shutdown)
}

// Close releases the handle of a task that was restored and isn't run. The task continues to run.
func (t *Task) Close() {
	if t.handle != nil {
		t.handle.Close()
		t.handle = nil
	}
}

// live leads the task until it ends without Stop, and returns why, or until ctx ends: then it
// returns nil.
func (t *Task) live(ctx context.Context) *End {
	if t.state.Phase == Stopping || t.state.Phase == Dead {
		return t.state.End
	}
	if t.state.Phase == Pending && ctx.Err() == nil {
		t.record(runtime.TaskPlaced, "", nil)
	}
	// A task that was RUNNING skips this: it is never started again.
	for t.state.Phase == Pending && ctx.Err() == nil {
		failed := t.attempt(ctx)
		if failed == nil || ctx.Err() != nil {
			break
		}
		if end := t.startFailed(ctx, *failed); end != nil {
			return end
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	err := t.handle.Wait(ctx)
	switch {
	case err == nil:
		return t.exited()
	case ctx.Err() != nil:
		return nil
	}
	end := &End{runtime.GoneUnknown, "the server could no longer watch it; the server's log says why"}
	t.record(runtime.TaskGone, end.Message, fmt.Errorf("wait for its end: %w", err))
	return end
}

// attempt starts the task once.
func (t *Task) attempt(ctx context.Context) *Failure {
	counts, began := t.config.Counts, time.Now()
	release, err := t.config.Turn(ctx)
	if err != nil {
		return &Failure{Message: "it got no turn to start", Err: err}
	}
	defer release()
	counts.Observe(health.PhaseTurn, began)
	if err := t.destroy(ctx); err != nil { // left by the attempt before
		return &Failure{Message: t.state.Waiting, Err: err}
	}
	began = time.Now()
	t.record(runtime.TaskPreparing, "", nil)
	if err := t.prestart(ctx); err != nil {
		f := failureOf(err)
		return &f
	}
	began = counts.Observe(health.PhasePrestart, began)
	// This comes before Start: a Start that fails may leave parts for Destroy.
	t.dirty = true
	if t.handle, err = t.config.Driver.Start(ctx, StartRequest{t.state.Values()}); err != nil {
		f := failureOf(err)
		return &f
	}
	began = counts.Observe(health.PhaseStart, began)
	t.record(runtime.TaskStarted, "", nil)
	if err := t.poststart(ctx, false); err != nil {
		f := failureOf(err)
		return &f
	}
	began = counts.Observe(health.PhasePoststart, began)
	// A task that was stopped during its start must not become RUNNING.
	if ctx.Err() != nil {
		return &Failure{Err: context.Cause(ctx)}
	}
	// The handle is saved with the phase: every RUNNING task that is stored can be reattached.
	t.state.Handle, t.state.StartedAt, t.state.Waiting = t.handle.Saved(), time.Now(), ""
	t.record(runtime.TaskReady, "", nil) // before move, so that it is saved with the phase
	if err := t.move(Running, nil); err != nil {
		return &Failure{Message: "its start couldn't be stored", Err: err}
	}
	counts.Observe(health.PhaseSave, began)
	counts.Starts.Add(1)
	return nil
}

// startFailed removes what a failed attempt left. It waits until the next attempt, or returns the
// End if there is none.
func (t *Task) startFailed(ctx context.Context, failed Failure) *End {
	t.config.Counts.StartFailures.Add(1)
	delay, again := t.tracker.next(time.Now(), failed, rand.Float64()) //nolint:gosec // no secret
	t.record(runtime.TaskStartFailed, failed.Message, failed.Err)
	// Leftovers would hold resources during the delay. If this fails, the next attempt tries again.
	if err := t.destroy(context.WithoutCancel(ctx)); err != nil {
		t.record(runtime.TaskRemovalFailed, "", err)
	}
	if !again {
		return &End{runtime.GoneStartFailed, failed.Message}
	}
	t.state.Restarts++
	t.config.Counts.Restarts.Add(1)
	t.state.LastRestart = time.Now()
	t.state.Waiting = failed.Message
	t.record(runtime.TaskRestarting, fmt.Sprintf("in %s", delay.Round(time.Millisecond)), nil)
	if err := t.save(); err != nil {
		t.note("store its state: %v", err)
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	}
	return nil
}

// exited asks the hooks why the task ended, and records it.
func (t *Task) exited() *End {
	end := End{Reason: runtime.GoneUnknown}
	_ = t.each("exited", func(ctx context.Context, h Hook) error {
		e, ok := h.(Exiter)
		if !ok {
			return nil
		}
		var response ExitedResponse
		err := e.Exited(ctx, ExitedRequest{}, &response)
		if response.End != nil {
			end = *response.End
		}
		return err
	})
	t.state.Failed = true
	t.config.Counts.Exits.Add(1)
	if end.Reason == runtime.GoneOutOfMemory {
		t.record(runtime.TaskOutOfMemory, "", nil)
	} else {
		t.record(runtime.TaskGone, end.Message, nil)
	}
	return &end
}

// prestart runs the prestart hooks that haven't succeeded yet.
func (t *Task) prestart(ctx context.Context) error {
	for _, h := range t.config.Hooks {
		p, ok := h.(Prestarter)
		if _, done := t.state.Done[h.Name()]; !ok || done {
			continue
		}
		var response PrestartResponse
		if err := p.Prestart(ctx, PrestartRequest{t.state.Values()}, &response); err != nil {
			return fmt.Errorf("prepare %s: %w", h.Name(), err)
		}
		if t.state.Done == nil {
			t.state.Done = map[string]Values{}
		}
		t.state.Done[h.Name()] = response.Values
	}
	return nil
}

// poststart runs the poststart hooks, and returns an error if one reports the task as unusable.
func (t *Task) poststart(ctx context.Context, restored bool) error {
	for _, h := range t.config.Hooks {
		p, ok := h.(Poststarter)
		if !ok {
			continue
		}
		var response PoststartResponse
		if err := p.Poststart(ctx, PoststartRequest{restored}, &response); err != nil {
			t.note("hook %s after the start: %v", h.Name(), err)
		}
		if response.Unusable != nil {
			return response.Unusable
		}
	}
	return nil
}

// each calls do for each hook, and notes errors. Its context is independent of the task's: hooks at
// the end of a task always run.
func (t *Task) each(when string, do func(context.Context, Hook) error) (failed error) {
	ctx, cancel := context.WithTimeout(context.Background(), t.config.Kill.Within)
	defer cancel()
	hooks := slices.Clone(t.config.Hooks)
	if when == "stop" {
		slices.Reverse(hooks)
	}
	for _, h := range hooks {
		if err := do(ctx, h); err != nil {
			t.note("hook %s at %s: %v", h.Name(), when, err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", h.Name(), err))
		}
	}
	return failed
}

// move moves the task forward to a phase, and saves that, which publishes it. It is the only
// function that changes the phase. A start that can't be saved is undone; an end stays, saved or
// not.
func (t *Task) move(to Phase, end *End) error {
	from := t.state.Phase
	if from.Before(to) {
		t.state.Phase = to
	}
	if end != nil {
		t.state.End = end
	}
	if to == Dead && t.state.FinishedAt.IsZero() {
		t.state.FinishedAt = time.Now()
	}
	err := t.save()
	if err != nil {
		t.note("store its state: %v", err)
	}
	if err != nil && to == Running {
		t.state.Phase, t.state.Handle = from, nil // it wasn't published
	}
	return err
}

// save saves the state if it has changed.
func (t *Task) save() error {
	digest := t.state.digest()
	if digest == t.saved {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveWithin)
	defer cancel()
	if err := t.config.Keeper.Save(ctx, t.state.clone()); err != nil {
		return err
	}
	t.saved = digest
	return nil
}

// note adds an event for the log only.
func (t *Task) note(format string, args ...any) {
	t.add(Event{Message: fmt.Sprintf(format, args...)})
}

// record adds an event that clients see, with details for them, and an error for the log.
func (t *Task) record(kind runtime.TaskEventKind, detail string, err error) {
	event := Event{Kind: kind, Detail: detail}
	if err != nil {
		event.Message = err.Error()
	}
	t.add(event)
}

// add sets an event's time, adds it to the state, and passes it to the Keeper.
func (t *Task) add(event Event) {
	event.At = time.Now()
	t.state.note(event)
	t.config.Keeper.Note(event)
}

// stopped returns the End of the first Stop; nil: Stop wasn't called. Once set, it doesn't change.
func (t *Task) stopped() *End {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stop
}
