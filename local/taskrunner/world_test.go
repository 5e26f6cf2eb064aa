package taskrunner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a driver, a keeper and a hook whose faults the tests set.
type world struct {
	mu       sync.Mutex // guards all below
	starts   []error    // errors of the next starts
	destroys []error
	unusable []error
	saves    []error
	stops    []error // of the stop hook
	deaf     bool    // signals end nothing
	blind    bool    // Wait fails

	procs   []*process // all that were started
	phases  []Phase    // as saved, without repetitions
	states  []State    // as saved
	noted   []string
	calls   []string
	destroy int
	again   bool // it was started after it ran
}

type process struct {
	w    *world
	id   string
	dead chan struct{}
	once sync.Once
}

func (p *process) end()                   { p.once.Do(func() { close(p.dead) }) }
func (p *process) Saved() json.RawMessage { return json.RawMessage(`"` + p.id + `"`) }
func (p *process) Close()                 {}

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

// pop returns the next planned fault.
func pop(faults *[]error) error {
	if len(*faults) == 0 {
		return nil
	}
	err := (*faults)[0]
	*faults = (*faults)[1:]
	return err
}

func (w *world) Start(ctx context.Context, request StartRequest) (Handle, error) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = w.again || slices.Contains(w.phases, Running)
	w.calls = append(w.calls, "start with "+request.Values["room"])
	if err := pop(&w.starts); err != nil {
		return nil, err
	}
	p := &process{w: w, id: fmt.Sprintf("p%d", len(w.procs)), dead: make(chan struct{})}
	w.procs = append(w.procs, p)
	return p, nil
}

func (w *world) Reattach(_ context.Context, saved json.RawMessage) (Handle, error) {
	for _, p := range w.procs {
		if string(p.Saved()) == string(saved) && !p.gone() {
			return p, nil
		}
	}
	return nil, errors.New("no such process")
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

func (p *process) gone() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

func (w *world) Save(_ context.Context, state State) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := pop(&w.saves); err != nil {
		return err
	}
	w.states = append(w.states, state)
	w.phases = slices.Compact(append(w.phases, state.Phase))
	return nil
}

func (w *world) Note(event Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noted = append(w.noted, string(event.Kind)+" "+event.Message)
}

func (w *world) last() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.states) == 0 {
		return State{Phase: Pending}
	}
	return w.states[len(w.states)-1]
}

// hook implements all hooks.
type hook struct{ *world }

func (hook) Name() string { return "all" }

func (h hook) called(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, what)
}

func (h hook) Prestart(_ context.Context, _ PrestartRequest, response *PrestartResponse) error {
	h.called("prestart")
	response.Values = Values{"room": "7"}
	return nil
}

func (h hook) Poststart(_ context.Context, _ PoststartRequest, response *PoststartResponse) error {
	h.called("poststart")
	h.mu.Lock()
	defer h.mu.Unlock()
	response.Unusable = pop(&h.unusable)
	return errors.New("a fault that changes nothing")
}

func (h hook) Exited(_ context.Context, _ ExitedRequest, response *ExitedResponse) error {
	h.called("exited")
	response.End = &End{runtime.GoneAgentDied, "the agent ended"}
	return errors.New("a fault that changes nothing")
}

func (h hook) Stop(_ context.Context, request StopRequest) error {
	h.called("stop " + request.Values["room"])
	h.mu.Lock()
	defer h.mu.Unlock()
	return pop(&h.stops)
}

func (w *world) config() Config {
	return Config{
		Driver: w, Keeper: w, Hooks: []Hook{hook{w}},
		Policy: Policy{Attempts: 2, Interval: time.Minute, Delay: time.Second, Jitter: 0.5},
		Kill:   Kill{Signal: syscall.SIGKILL, Timeout: time.Second, Within: 10 * time.Second},
		Turn:   func(ctx context.Context) (func(), error) { return func() {}, ctx.Err() },
	}
}

// led runs a task; leave ends the server.
func led(w *world, state State) (task *Task, leave func()) {
	task = New(w.config(), state)
	ctx, cancel := context.WithCancel(context.Background())
	go task.Run(ctx)
	return task, func() {
		cancel()
		<-task.left
	}
}
