package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/network/access"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// Config is what a runner consists of, and what it uses of the cluster.
type Config struct {
	ID          runtime.RunnerID
	Environment runtime.Environment
	Ports       []runtime.PortMapping // the mappings that its ports had before a restart of the server
	Host        *host.Host
	Images      Images
	Network     *access.Access
	Logger      *zap.Logger
	Counts      *health.TaskCounts // shared by runners

	// Admit waits until the runner may be made, which is costly for the machine. The caller calls
	// release after the attempt. It returns an error if ctx ends first.
	Admit func(ctx context.Context) (release func(), err error)
	// Save stores a status durably, then publishes it. The runner calls it one at a time.
	Save func(ctx context.Context, s Status) error
	// Show changes what clients see of the runner in addition to its status.
	Show func(change func(*runtime.Runner))
}

// NewCounts returns counters for any number of runners, with a timing for each phase of a start.
func NewCounts() *health.TaskCounts {
	return health.NewTaskCounts(health.PhaseTurn, health.PhasePrestart, health.PhaseStart, health.PhasePoststart, health.PhaseSave)
}

// steps are what a Runner does with its machine, one at a time; a [Sandbox] documents them. Each may
// be called again after a failure, or after the server that called it died.
type steps interface {
	Prepare(ctx context.Context, slot *int) (*int, error)
	Create(ctx context.Context, slot int) (Handle, *Process, error)
	Reattach(ctx context.Context, p Process, slot int) (Handle, error)
	Ready(ctx context.Context, restored bool) error
	Exited() Exit
	Destroy(ctx context.Context) error
	Release(slot *int) error
}

// A Handle is the first process of a sandbox.
type Handle interface {
	Wait(ctx context.Context) error // returns nil once the process has ended, or ctx's error
	Signal(signal syscall.Signal) error
	Close() // releases the handle; the process continues to run
}

// Bounds of a runner's life.
const (
	saveWithin = 15 * time.Second // one save
	// killAfter is how long the first process may take to end after SIGKILL, which also ends its pid
	// namespace. Programs of a runner that is being removed get no time to clean up. Its cgroup kills what survives.
	killAfter = time.Second
	// CleanWithin bounds one try of a removal.
	CleanWithin = 15 * time.Second
)

// A Runner leads one runner. Call New, optionally Restore, then Run, each once. The other methods
// may be called at any time, concurrently.
type Runner struct {
	Sandbox *Sandbox

	config Config
	log    *zap.Logger
	steps  steps // the Sandbox; tests have others

	// The goroutine that calls Restore, then Run, owns the fields below.
	status   Status
	unsaved  bool // the status has changed since it was saved; events alone don't count
	restarts restartPolicy
	handle   Handle
	dirty    bool  // destroy may have something to remove
	lost     bool  // Restore has failed
	exited   bool  // its first process ended without Stop
	failed   error // the last error, for the log

	again syncs.Hint // Stop was called

	mu      sync.Mutex              // guards the fields below
	events  []runtime.TaskEvent     // the latest; replaced, never changed in place
	stop    *Exit                   // set by the first Stop
	ending  bool                    // it was stopped, or has ended
	cancel  context.CancelCauseFunc // ends Run's live context
	tried   chan struct{}           // closed and replaced when a removal fails, and when Run ends
	removal error                   // the result of that
	over    bool                    // Run has ended, or has removed the runner
}

var (
	errStopped = errors.New("the runner was stopped") // the cause of Run's live context after Stop
	errLeft    = errors.New("the server is stopping; the next one removes the runner")
)

// New returns a runner with a status, which counts as saved. It makes nothing yet.
func New(config Config, s Status) *Runner {
	r := &Runner{
		config: config, log: config.Logger.With(zap.String("runner", string(config.ID))), status: s, events: s.Events,
		// An error that retrying can't fix, such as a limit that the kernel refuses, isn't retried;
		// the pool waits between runners that couldn't start.
		restarts: restartPolicy{attempts: 2, interval: 5 * time.Minute, delay: 300 * time.Millisecond, jitter: 0.5},
		dirty:    s.State != runtime.RunnerStarting,
		again:    syncs.NewHint(), tried: make(chan struct{}),
	}
	r.Sandbox = &Sandbox{
		Group: s.Group, Counters: &Counters{log: r.log, ownKernel: config.Environment.Isolation == runtime.IsolationGVisor}, config: config,
		network: config.Network.Runner(config.ID, s.Group, config.Environment.Network, config.Ports, r),
	}
	r.steps = r.Sandbox
	return r
}

// Stop ends the runner, whatever it is doing; after a failed removal it causes one more try. The
// Exit of the first call counts. Stop doesn't wait.
func (r *Runner) Stop(exit Exit) {
	r.mu.Lock()
	if r.stop == nil {
		r.stop = &exit
	}
	r.ending = true
	r.again.Send() // before cancel: the removal that this Stop causes consumes it
	cancel := r.cancel
	r.mu.Unlock()
	if cancel != nil {
		cancel(errStopped)
	}
}

// Tried returns a function that waits for the result of a removal. It returns nil once the runner is
// GONE and removed. It returns an error if a removal fails after the call of Tried, if Run returns
// first because the server stops, or ctx's cause. Call Tried before Stop: the removal that Stop
// causes can fail before Stop returns.
func (r *Runner) Tried() (wait func(ctx context.Context) error) {
	// report replaces the channel, so wait reports only a failure from now on.
	r.mu.Lock()
	tried, over := r.tried, r.over
	r.mu.Unlock()
	return func(ctx context.Context) error {
		if !over {
			select {
			case <-tried:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.removal
	}
}

// report wakes the waiters with the result of a removal. After the last one, it does nothing.
func (r *Runner) report(result error, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.removal, r.over = result, last
		close(r.tried)
		r.tried = make(chan struct{})
	}
}

// Events returns the latest events, oldest first.
func (r *Runner) Events() []runtime.TaskEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// PortsMapped implements access.Owner.
func (r *Runner) PortsMapped(at []runtime.PortMapping) {
	r.config.Show(func(shown *runtime.Runner) { shown.Ports = at })
}

// Ending implements access.Owner.
func (r *Runner) Ending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ending
}

// StopOutside implements access.Owner.
func (r *Runner) StopOutside(message string) {
	r.Stop(Exit{runtime.GoneStoppedOutside, message})
}

// Restore reattaches to a runner that ran when the last server ended, so that Run can continue with
// it. After an error the runner has ended or is unusable, and Run removes what is left of it. If the
// error wraps ErrUnread, that is unknown.
func (r *Runner) Restore(ctx context.Context) error {
	s := r.status
	err := errors.New("it wasn't running when the last server ended")
	if runtime.RunnerStarting.Before(s.State) && s.State.Before(runtime.RunnerStopping) && s.Process != nil && s.Slot != nil {
		if r.handle, err = r.steps.Reattach(ctx, *s.Process, *s.Slot); err == nil {
			if err = r.steps.Ready(ctx, true); err == nil {
				r.config.Counts.Restores.Add(1)
				r.record(runtime.TaskRestored, "", nil)
				return nil
			}
			r.close()
		}
		r.config.Counts.Lost.Add(1)
	}
	r.lost, r.dirty = true, true // the record may be older than what was made
	return err
}

// Run leads the runner until it is GONE and removed, or until shutdown ends; then a running one is
// left running. It starts no goroutine.
func (r *Runner) Run(shutdown context.Context) {
	defer r.report(errLeft, true)
	defer r.close()
	live, cancel := context.WithCancelCause(shutdown)
	defer cancel(nil)
	r.mu.Lock()
	r.cancel = cancel
	// A Stop before Run found no cancel to call.
	if r.stop != nil {
		cancel(errStopped)
	}
	r.mu.Unlock()
	exit := r.live(live)
	switch stop := r.stopped(); {
	case r.lost:
		if stop != nil && r.status.State != runtime.RunnerGone {
			r.record(runtime.TaskGone, stop.Message, nil)
		}
	case stop != nil:
		r.record(runtime.TaskStopping, stop.Message, nil)
		_ = r.move(runtime.RunnerStopping, nil) // it must end even if that can't be stored; the log has the error
	case exit != nil:
		_ = r.move(runtime.RunnerGone, exit) // likewise
	default: // the server stops
		// Only a runner that was IDLE can be restored, so what was begun of this one is removed.
		if r.status.State == runtime.RunnerStarting && r.dirty {
			if err := r.destroy(context.WithoutCancel(shutdown)); err != nil {
				r.log.Warn("what was begun of a runner couldn't be removed", zap.Error(err))
			}
		}
		return
	}
	r.remove(shutdown)
}

func (r *Runner) close() {
	if r.handle != nil {
		r.handle.Close()
		r.handle = nil
	}
}

// live leads the runner until it ends without Stop, and returns why, or until ctx ends: then it
// returns nil.
func (r *Runner) live(ctx context.Context) *Exit {
	if r.lost || !r.status.State.Before(runtime.RunnerStopping) {
		return nil
	}
	if r.status.State == runtime.RunnerStarting && ctx.Err() == nil {
		r.record(runtime.TaskPlaced, "", nil)
	}
	// A runner that was IDLE skips this: it is never made again.
	for r.status.State == runtime.RunnerStarting && ctx.Err() == nil {
		err := r.attempt(ctx)
		if err == nil || ctx.Err() != nil {
			break
		}
		if exit := r.startFailed(ctx, sandbox.FailureOf(err)); exit != nil {
			return exit
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	if err := r.handle.Wait(ctx); err != nil && ctx.Err() != nil {
		return nil
	} else if err != nil {
		exit := &Exit{runtime.GoneUnknown, "the server could no longer watch it; the server's log says why"}
		r.record(runtime.TaskGone, exit.Message, fmt.Errorf("wait for its end: %w", err))
		return exit
	}
	exit := r.steps.Exited()
	r.exited = true
	r.config.Counts.Exits.Add(1)
	if exit.Reason == runtime.GoneOutOfMemory {
		r.record(runtime.TaskOutOfMemory, "", nil)
	} else {
		r.record(runtime.TaskGone, exit.Message, nil)
	}
	return &exit
}

func (r *Runner) attempt(ctx context.Context) error {
	counts, began := r.config.Counts, time.Now()
	release, err := r.config.Admit(ctx)
	if err != nil {
		return &sandbox.Failure{Message: "it got no turn to start", Err: err}
	}
	defer release()
	counts.Observe(health.PhaseTurn, began)
	if err := r.destroy(ctx); err != nil { // left by the attempt before
		return &sandbox.Failure{Message: r.status.Message, Err: errors.Join(r.failed, err)}
	}
	began = time.Now()
	r.record(runtime.TaskPreparing, "", nil)
	if r.status.Slot, err = r.steps.Prepare(ctx, r.status.Slot); err != nil {
		return fmt.Errorf("prepare its sandbox: %w", err)
	}
	began = counts.Observe(health.PhasePrestart, began)
	// This comes before create: one that fails may leave parts for destroy.
	r.dirty = true
	var made *Process
	if r.handle, made, err = r.steps.Create(ctx, *r.status.Slot); err != nil {
		return err
	}
	began = counts.Observe(health.PhaseStart, began)
	r.record(runtime.TaskStarted, "", nil)
	if err := r.steps.Ready(ctx, false); err != nil {
		return err
	}
	began = counts.Observe(health.PhasePoststart, began)
	// A runner that was stopped during its start must not become IDLE.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The process is saved with the state: every runner that is stored as IDLE can be reattached.
	before := r.status
	r.status.Process, r.status.Message = made, ""
	r.record(runtime.TaskReady, "", nil) // before move, so that it is saved with the state
	if err := r.move(runtime.RunnerIdle, nil); err != nil {
		r.status.State, r.status.Process, r.status.Message = before.State, nil, before.Message // it wasn't published
		return &sandbox.Failure{Message: "its start couldn't be stored", Err: err}
	}
	counts.Observe(health.PhaseSave, began)
	counts.Starts.Add(1)
	return nil
}

// startFailed removes what a failed attempt left. It waits until the next attempt, or returns the
// Exit if there is none.
func (r *Runner) startFailed(ctx context.Context, failed sandbox.Failure) *Exit {
	r.config.Counts.StartFailures.Add(1)
	delay, again := r.restarts.next(time.Now(), failed, rand.Float64()) //nolint:gosec // no secret
	r.record(runtime.TaskStartFailed, failed.Message, failed.Err)
	// Leftovers would hold resources during the delay. If this fails, the next attempt tries again.
	if err := r.destroy(context.WithoutCancel(ctx)); err != nil {
		r.record(runtime.TaskRemovalFailed, "", err)
		r.failed = errors.Join(failed.Err, err)
	}
	if !again {
		return &Exit{runtime.GoneStartFailed, failed.Message}
	}
	r.config.Counts.Restarts.Add(1)
	r.status.Message = failed.Message
	r.record(runtime.TaskRestarting, fmt.Sprintf("in %s", delay.Round(time.Millisecond)), nil)
	r.unsaved = true
	_ = r.save() // shown only: the next attempt doesn't depend on it
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	}
	return nil
}

// move moves the runner forward to a state, and saves that, which publishes it. It is the only
// function that changes the state. The caller undoes a start that can't be saved; an end stays,
// saved or not.
func (r *Runner) move(to runtime.RunnerState, exit *Exit) error {
	if r.status.State.Before(to) {
		r.status.State, r.unsaved = to, true
		if exit != nil {
			r.status.Reason, r.status.Message = exit.Reason, exit.Message
		}
	}
	if !to.Before(runtime.RunnerStopping) {
		r.mu.Lock()
		r.ending = true
		r.mu.Unlock()
	}
	return r.save()
}

// save saves the status if it has changed.
func (r *Runner) save() error {
	if !r.unsaved {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveWithin)
	defer cancel()
	s := r.status
	s.Events = r.events // only this goroutine writes them
	if !s.Removed && (s.Reason == runtime.GoneStartFailed || s.Reason == runtime.GoneUnknown) {
		r.log.Warn("a runner couldn't be started or watched, and is removed", zap.Any("events", s.Events), zap.Error(r.failed))
	}
	if err := r.config.Save(ctx, s); err != nil {
		r.log.Warn("a runner's state couldn't be stored", zap.Error(err))
		return err
	}
	r.unsaved = false
	return nil
}

// record adds an event that clients see, with details for them, and an error for the log.
func (r *Runner) record(kind runtime.TaskEventKind, detail string, err error) {
	r.log.Debug("runner event", zap.String("kind", string(kind)), zap.String("detail", detail), zap.Error(err))
	if err != nil {
		r.failed = err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.events[max(0, len(r.events)-runtime.KeptTaskEvents+1):]
	r.events = append(slices.Clone(kept), runtime.TaskEvent{At: time.Now(), Kind: kind, Detail: detail})
}

// stopped returns the Exit of the first Stop, and nil before. Once set, it doesn't change.
func (r *Runner) stopped() *Exit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop
}

// A restartPolicy bounds the restarts of a runner that doesn't start, and counts them.
type restartPolicy struct {
	attempts int           // at most so many restarts within interval
	interval time.Duration // how long a restart counts against attempts
	delay    time.Duration // before a restart
	jitter   float64       // a random share of delay, up to this one, is added, so that runners don't retry together

	restarts []time.Time // within the interval
}

// next returns how long to wait before the restart after a failed attempt, and false if there is
// none. chance is a random number from 0 to 1.
func (p *restartPolicy) next(now time.Time, failed sandbox.Failure, chance float64) (time.Duration, bool) {
	p.restarts = slices.DeleteFunc(p.restarts, func(at time.Time) bool { return now.Sub(at) >= p.interval })
	if failed.Unrecoverable || len(p.restarts) >= p.attempts {
		return 0, false
	}
	p.restarts = append(p.restarts, now)
	return p.delay + time.Duration(chance*p.jitter*float64(p.delay)), true
}
