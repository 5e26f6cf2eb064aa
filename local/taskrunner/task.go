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
	"github.com/rockpool/rockpool/runtime/tasks"
)

// Config is what a task is.
type Config struct {
	Driver Driver
	Hooks  []Hook // in the order in which they start
	Policy Policy
	Kill   Kill
	Keeper Keeper
	Counts *tasks.Counts // shared by many tasks; nil: its own

	// Turn waits until the task may start, which costs the machine something,
	// and returns what gives the turn back. It returns an error if ctx ends.
	Turn func(ctx context.Context) (release func(), err error)
}

// Kill is how what runs is ended.
type Kill struct {
	Signal  syscall.Signal // sent to the first process
	Timeout time.Duration  // how long its end is waited for, before Destroy forces it
	Within  time.Duration  // bounds one try of a whole removal
}

// A Keeper keeps a task's state and tells it. Its methods are called by the
// task alone, one at a time.
type Keeper interface {
	// Save makes state durable, and then tells it to who wants to know.
	Save(ctx context.Context, state State) error
	// Note is told every event at once.
	Note(event Event)
}

// saveWithin bounds one save.
const saveWithin = 15 * time.Second

// A Task is one task. New, or Restore, then Run, once each; Stop and Wait may
// be called at any time, by anybody.
type Task struct {
	config Config

	// Owned by who calls Restore, then by Run.
	state   State
	saved   [sha256.Size]byte // digest of what was saved last
	tracker tracker
	handle  Handle
	dirty   bool // there may be something that Destroy has to remove

	again chan struct{} // capacity 1: Stop was called; look again
	ended chan struct{} // closed once the task is dead and removed
	left  chan struct{} // closed when Run returns

	mu     sync.Mutex // guards what follows
	stop   *End       // why it is to end
	cancel context.CancelCauseFunc
	tried  chan struct{} // closed and replaced when a try to remove failed
	failed error         // of that try
}

var errStopped = errors.New("the task is to end")

// New returns a task in a state: State{Phase: Pending}, or what was saved of
// it. What state has counts as saved.
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

// Stop has the task end, whatever it does; or, where its removal failed, has
// that be tried again. The end of the first call counts. It doesn't wait.
func (t *Task) Stop(end End) {
	t.mu.Lock()
	if t.stop == nil {
		t.stop = &end
	}
	select {
	case t.again <- struct{}{}: // first: the try that this Stop leads to takes it
	default:
	}
	cancel := t.cancel
	t.mu.Unlock()
	if cancel != nil {
		cancel(errStopped)
	}
}

// Wait returns nil once the task is dead and removed, or the error of the first
// try of its removal that fails from now on.
func (t *Task) Wait(ctx context.Context) error {
	t.mu.Lock()
	tried := t.tried
	t.mu.Unlock()
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
			return errors.New("the server is stopping")
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run leads the task until it is dead and removed, or until shutdown ends:
// then what runs is left running.
func (t *Task) Run(shutdown context.Context) {
	defer close(t.left)
	defer t.Close()
	live, cancel := context.WithCancelCause(shutdown)
	defer cancel(nil)
	t.mu.Lock()
	t.cancel = cancel
	if t.stop != nil {
		cancel(errStopped)
	}
	t.mu.Unlock()

	end := t.live(live)
	switch {
	case t.stopped() != nil:
		t.tell(runtime.TaskStopping, t.stopped().Message, nil)
		_ = t.move(Stopping, nil) // stored or not, it is to end; an event says so
	case end != nil:
		_ = t.move(Dead, end) // likewise
	default: // the server stops
		if t.state.Phase == Pending && t.dirty {
			if err := t.destroy(context.WithoutCancel(shutdown)); err != nil {
				t.note("what was begun of it isn't removed yet: %v", err)
			}
		}
		return
	}
	t.finish(shutdown)
}

// Close lets go of a task that was restored and is not to be Run.
func (t *Task) Close() {
	if t.handle != nil {
		t.handle.Close()
		t.handle = nil
	}
}

// live leads the task to its end by itself, which it returns, or until ctx
// ends.
func (t *Task) live(ctx context.Context) *End {
	if t.state.Phase == Stopping || t.state.Phase == Dead {
		return t.state.End
	}
	if t.state.Phase == Pending && ctx.Err() == nil {
		t.tell(runtime.TaskPlaced, "", nil)
	}
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
	end := &End{runtime.GoneUnknown, "the server could not watch it any more; its log says why"}
	t.tell(runtime.TaskGone, end.Message, fmt.Errorf("its end can't be waited for: %w", err))
	return end
}

// attempt starts the task once.
func (t *Task) attempt(ctx context.Context) *Failure {
	counts, began := t.config.Counts, time.Now()
	release, err := t.config.Turn(ctx)
	if err != nil {
		return &Failure{Message: "it got no turn", Err: err}
	}
	defer release()
	counts.Took(tasks.Turn, began)
	if err := t.destroy(ctx); err != nil { // what the attempt before left
		return &Failure{Message: t.state.Waiting, Err: err}
	}
	began = time.Now()
	t.tell(runtime.TaskPreparing, "", nil)
	if err := t.prestart(ctx); err != nil {
		f := failureOf(err)
		return &f
	}
	began = counts.Took(tasks.Prestart, began)
	t.dirty = true
	if t.handle, err = t.config.Driver.Start(ctx, StartRequest{t.state.Values()}); err != nil {
		f := failureOf(err)
		return &f
	}
	began = counts.Took(tasks.Start, began)
	t.tell(runtime.TaskStarted, "", nil)
	if err := t.poststart(ctx, false); err != nil {
		f := failureOf(err)
		return &f
	}
	began = counts.Took(tasks.Poststart, began)
	if ctx.Err() != nil {
		return &Failure{Err: context.Cause(ctx)}
	}
	t.state.Handle, t.state.StartedAt, t.state.Waiting = t.handle.Saved(), time.Now(), ""
	t.tell(runtime.TaskReady, "", nil) // now, so that it is saved too
	if err := t.move(Running, nil); err != nil {
		return &Failure{Message: "that it started could not be stored", Err: err}
	}
	counts.Took(tasks.Save, began)
	counts.Starts.Add(1)
	return nil
}

// startFailed removes what an attempt left, and waits until another may
// follow; or it returns why none does.
func (t *Task) startFailed(ctx context.Context, failed Failure) *End {
	t.config.Counts.StartFailures.Add(1)
	delay, again := t.tracker.next(time.Now(), failed, rand.Float64()) //nolint:gosec // no secret
	t.tell(runtime.TaskStartFailed, failed.Message, failed.Err)
	if err := t.destroy(context.WithoutCancel(ctx)); err != nil {
		t.tell(runtime.TaskRemovalFailed, "", err)
	}
	if !again {
		return &End{runtime.GoneStartFailed, failed.Message}
	}
	t.state.Restarts++
	t.config.Counts.Restarts.Add(1)
	t.state.LastRestart = time.Now()
	t.state.Waiting = failed.Message
	t.tell(runtime.TaskRestarting, fmt.Sprintf("in %s", delay.Round(time.Millisecond)), nil)
	if err := t.save(); err != nil {
		t.note("its state could not be stored: %v", err)
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	}
	return nil
}

// exited asks the hooks why the task ended.
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
		t.tell(runtime.TaskOutOfMemory, "", nil)
	} else {
		t.tell(runtime.TaskGone, end.Message, nil)
	}
	return &end
}

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

// poststart returns an error if a hook says that the task can't be used.
func (t *Task) poststart(ctx context.Context, restored bool) error {
	for _, h := range t.config.Hooks {
		p, ok := h.(Poststarter)
		if !ok {
			continue
		}
		var response PoststartResponse
		if err := p.Poststart(ctx, PoststartRequest{restored}, &response); err != nil {
			t.note("hook %s after its start: %v", h.Name(), err)
		}
		if response.Unusable != nil {
			return response.Unusable
		}
	}
	return nil
}

// each calls do for the hooks, and notes errors. Ctx doesn't end with the
// task: what happens at its end happens always.
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

// move brings the task forward to a phase and saves that, which tells it. It
// is the only place that changes the phase. What can't be saved doesn't run;
// but what ended has ended, saved or not.
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
		t.note("its state could not be stored: %v", err)
	}
	if err != nil && to == Running {
		t.state.Phase, t.state.Handle = from, nil // nobody was told
	}
	return err
}

// save saves the state unless it was saved already.
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

// note adds an event for the log alone.
func (t *Task) note(format string, args ...any) {
	t.add(Event{Message: fmt.Sprintf(format, args...)})
}

// tell adds an event that clients are told of, with what they may know of it
// beside its kind, and with an error for the log.
func (t *Task) tell(kind runtime.TaskEventKind, detail string, err error) {
	event := Event{Kind: kind, Detail: detail}
	if err != nil {
		event.Message = err.Error()
	}
	t.add(event)
}

func (t *Task) add(event Event) {
	event.At = time.Now()
	t.state.note(event)
	t.config.Keeper.Note(event)
}

// stopped returns why the task is to end, or nil; it doesn't change once it is set.
func (t *Task) stopped() *End {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stop
}
