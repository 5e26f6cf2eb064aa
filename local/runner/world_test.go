package runner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a machine, and a store of statuses, whose faults the tests set.
type world struct {
	mu       sync.Mutex // guards all below
	starts   []error    // errors of the next creates
	destroys []error
	unusable []error
	saves    []error
	stops    []error // of releases
	deaf     bool    // signals end nothing
	blind    bool    // Wait fails

	procs   []*process            // all that were started
	phases  []runtime.RunnerState // as saved, without repetitions
	states  []Status              // as saved
	calls   []string
	destroy int
	again   bool // it was started after it ran
	counts  *health.TaskCounts
	admit   func(ctx context.Context) (func(), error)
	log     *zap.Logger
	logged  *observer.ObservedLogs
}

type process struct {
	w    *world
	pid  int
	dead chan struct{}
	once sync.Once
}

func (p *process) end()   { p.once.Do(func() { close(p.dead) }) }
func (p *process) Close() {}

func (p *process) Wait(ctx context.Context) error {
	if p.w.blind {
		return errors.New("blind")
	}
	select {
	case <-p.dead:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *process) Signal(syscall.Signal) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if !p.w.deaf {
		p.end()
	}
	return nil
}

func (p *process) gone() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// pop returns the next planned fault.
func pop(faults *[]error) error {
	if len(*faults) == 0 {
		return nil
	}
	err := (*faults)[0]
	*faults = (*faults)[1:]
	return err
}

func (w *world) called(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, what)
}

func (w *world) Prepare(_ context.Context, slot *int) (*int, error) {
	if slot == nil {
		w.called("prepare")
		slot = new(int)
		*slot = 7
	}
	return slot, nil
}

func (w *world) Create(ctx context.Context, slot int) (Handle, *Process, error) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = w.again || slices.Contains(w.phases, runtime.RunnerIdle)
	if slot != 7 {
		w.calls = append(w.calls, "create with a wrong slot")
	}
	w.calls = append(w.calls, "create")
	if err := pop(&w.starts); err != nil {
		return nil, nil, err
	}
	p := &process{w: w, pid: len(w.procs) + 1, dead: make(chan struct{})}
	w.procs = append(w.procs, p)
	return p, &Process{PID: p.pid}, nil
}

func (w *world) Reattach(_ context.Context, saved Process, slot int) (Handle, error) {
	for _, p := range w.procs {
		if p.pid == saved.PID && slot == 7 && !p.gone() {
			return p, nil
		}
	}
	return nil, errors.New("no such process")
}

func (w *world) Ready(context.Context, bool) error {
	w.called("ready")
	w.mu.Lock()
	defer w.mu.Unlock()
	return pop(&w.unusable)
}

func (w *world) Exited() Exit {
	w.called("exited")
	return Exit{runtime.GoneAgentDied, "the agent ended"}
}

func (w *world) Destroy(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.destroy++
	if err := pop(&w.destroys); err != nil {
		return err
	}
	for _, p := range w.procs {
		p.end()
	}
	return nil
}

func (w *world) Release(slot *int) error {
	if slot != nil && *slot == 7 {
		w.called("release 7")
	} else {
		w.called("release")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return pop(&w.stops)
}

func (w *world) save(_ context.Context, s Status) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := pop(&w.saves); err != nil {
		return err
	}
	w.states = append(w.states, s)
	w.phases = slices.Compact(append(w.phases, s.State))
	return nil
}

func (w *world) last() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.states) == 0 {
		return starting
	}
	return w.states[len(w.states)-1]
}

var starting = Status{State: runtime.RunnerStarting}

// runner returns a runner in this world.
func (w *world) runner(s Status) *Runner {
	if w.counts == nil {
		w.counts = NewCounts()
	}
	if w.admit == nil {
		w.admit = func(ctx context.Context) (func(), error) { return func() {}, ctx.Err() }
	}
	if w.log == nil {
		var core zapcore.Core
		core, w.logged = observer.New(zap.DebugLevel)
		w.log = zap.New(core)
	}
	r := New(Config{ID: "a", Logger: w.log, Counts: w.counts, Admit: w.admit, Save: w.save}, s)
	r.steps = w
	r.restarts = restartPolicy{attempts: 2, interval: time.Minute, delay: time.Second, jitter: 0.5}
	return r
}

// Wait waits for the result of the next removal.
func (r *Runner) Wait(ctx context.Context) error { return r.Tried()(ctx) }

// start runs a runner; leave ends the server.
func start(w *world, s Status) (r *Runner, leave func()) {
	r = w.runner(s)
	ctx, cancel := context.WithCancel(context.Background())
	return r, runs(ctx, cancel, r)
}

// runs runs r until the function that it returns is called, or r has ended.
func runs(ctx context.Context, cancel func(), r *Runner) (leave func()) {
	left := make(chan struct{})
	go func() {
		defer close(left)
		r.Run(ctx)
	}()
	return func() {
		cancel()
		<-left
	}
}
