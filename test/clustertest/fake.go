package clustertest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent/serve"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

// A Fake is a Cluster in memory, for tests of everything above a cluster. Its runners are
// goroutines that serve the agent's real protocol over pipes and know a few commands (see
// programs). It passes the suite like any cluster.
type Fake struct {
	starting sync.WaitGroup // goroutines of Start; Close waits for them

	mu           sync.Mutex    // guards the fields below
	startDelay   time.Duration // from a Start until IDLE
	onStart      func(runtime.RunnerID) error
	onMark       func(runtime.RunnerID, runtime.Claim) error
	environments map[runtime.EnvironmentID]runtime.Environment
	runners      map[runtime.RunnerID]*fakeRunner
	watchers     map[int]func(runtime.EnvironmentID)
	watched      int
	past         health.RemovedRunners
	starts       int
}

// A fakeRunner is a runner of a Fake, with the agent that serves it.
type fakeRunner struct {
	runtime.Runner
	evidence runtime.Evidence
	asked    int // calls of Evidence since Count
	events   []runtime.TaskEvent
	programs *programs
	server   *serve.Server
	streams  chan net.Conn // to its agent
	end      context.CancelFunc
	ended    chan struct{} // closed when it no longer serves anything
}

// NewFake returns an empty cluster.
func NewFake() *Fake {
	return &Fake{
		environments: map[runtime.EnvironmentID]runtime.Environment{},
		runners:      map[runtime.RunnerID]*fakeRunner{},
		watchers:     map[int]func(runtime.EnvironmentID){},
		onStart:      func(runtime.RunnerID) error { return nil },
		onMark:       func(runtime.RunnerID, runtime.Claim) error { return nil },
	}
}

// StartDelay sets how long a start takes.
func (f *Fake) StartDelay(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.startDelay = d
}

// OnStart makes every start call do; if that returns an error, the start fails with it.
func (f *Fake) OnStart(do func(runtime.RunnerID) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onStart = do
}

// OnMark makes every mark call do first; if that returns an error, the mark returns it.
func (f *Fake) OnMark(do func(runtime.RunnerID, runtime.Claim) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onMark = do
}

// PutEnvironment implements runtime.Cluster.
func (f *Fake) PutEnvironment(_ context.Context, env runtime.Environment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	stored := f.environments[env.ID]
	switch {
	case stored.Revision == env.Revision && stored.Same(env):
	case stored.Revision == env.Revision-1:
		f.environments[env.ID] = env
	default:
		return runtime.Errorf(runtime.CodeConflict, "environment %s is at revision %d", env.ID, stored.Revision)
	}
	return nil
}

// DeleteEnvironment implements runtime.Cluster.
func (f *Fake) DeleteEnvironment(_ context.Context, id runtime.EnvironmentID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.environments, id)
	return nil
}

// Environments implements runtime.Cluster.
func (f *Fake) Environments(context.Context) ([]runtime.Environment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []runtime.Environment
	for _, env := range f.environments {
		all = append(all, env)
	}
	return all, nil
}

// Start implements runtime.Cluster.
func (f *Fake) Start(_ context.Context, id runtime.RunnerID, env runtime.Environment, _ runtime.Priority) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runners[id] != nil {
		return nil
	}
	f.starts++
	ctx, end := context.WithCancel(context.Background())
	programs := newPrograms()
	r := &fakeRunner{streams: make(chan net.Conn), end: end, ended: make(chan struct{}), programs: programs, server: serve.New(programs, serve.Config{})}
	r.Runner = runtime.Runner{ID: id, Environment: env, State: runtime.RunnerStarting, CreatedAt: time.Now()}
	r.happened(runtime.TaskPlaced, "")
	f.runners[id] = r
	go r.serve(ctx)
	delay := f.startDelay
	f.starting.Go(func() {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			f.started(r)
		case <-ctx.Done():
		}
	})
	return nil
}

// serve serves streams to the runner's agent until ctx ends. It waits for its goroutines.
func (r *fakeRunner) serve(ctx context.Context) {
	defer close(r.ended)
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case stream := <-r.streams:
			group.Go(func() { r.server.Handle(ctx, stream) })
		case <-ctx.Done():
			return
		}
	}
}

// started makes a runner IDLE, unless OnStart's function fails its start.
func (f *Fake) started(r *fakeRunner) {
	f.mu.Lock()
	do := f.onStart
	f.mu.Unlock()
	if err := do(r.ID); err != nil {
		f.end(r.ID, runtime.GoneStartFailed, err.Error())
		return
	}
	f.mu.Lock()
	if r.State == runtime.RunnerStarting {
		r.State = runtime.RunnerIdle
		r.happened(runtime.TaskReady, "")
	}
	f.mu.Unlock()
	f.hint(r.Environment.ID)
}

// Kill ends a runner unasked, as a failure of its machine would.
func (f *Fake) Kill(id runtime.RunnerID, reason runtime.GoneReason) {
	f.end(id, reason, "killed by a test")
}

// end makes a runner GONE. It stays listed until Remove.
func (f *Fake) end(id runtime.RunnerID, reason runtime.GoneReason, message string) {
	f.mu.Lock()
	r := f.runners[id]
	if r != nil {
		r.State, r.GoneReason, r.Message = runtime.RunnerGone, reason, message
		r.happened(runtime.TaskGone, message)
	}
	f.mu.Unlock()
	if r != nil {
		r.end()
		f.hint(r.Environment.ID)
	}
}

// Count sets the host's counters of a runner.
func (f *Fake) Count(id runtime.RunnerID, evidence runtime.Evidence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.runners[id]; r != nil {
		r.evidence, r.asked = evidence, 0
	}
}

// Counted returns how often Evidence was called since Count.
func (f *Fake) Counted(id runtime.RunnerID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.runners[id]; r != nil {
		return r.asked
	}
	return 0
}

// Starts returns the number of runners ever started.
func (f *Fake) Starts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts
}

// Begun returns how often an execution was started in a runner.
func (f *Fake) Begun(id runtime.RunnerID, x runtime.ExecutionID) int {
	f.mu.Lock()
	r := f.runners[id]
	f.mu.Unlock()
	if r == nil {
		return 0
	}
	r.programs.mu.Lock()
	defer r.programs.mu.Unlock()
	return r.programs.begun[string(x)]
}

// Mark implements runtime.Cluster.
func (f *Fake) Mark(_ context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	f.mu.Lock()
	do := f.onMark
	f.mu.Unlock()
	if err := do(id, claim); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.runners[id]
	switch {
	case r == nil || r.State == runtime.RunnerGone:
		return gone(id)
	case r.Claim.Equal(claim):
		return nil
	case r.Claim.Epoch != claim.Epoch-1:
		return runtime.Errorf(runtime.CodeConflict, "runner %s is at epoch %d of its claim", id, r.Claim.Epoch)
	}
	r.Claim, r.State = claim, runtime.RunnerClaimed
	return nil
}

// Remove implements runtime.Cluster.
func (f *Fake) Remove(_ context.Context, id runtime.RunnerID) error {
	f.mu.Lock()
	r := f.runners[id]
	delete(f.runners, id)
	if r != nil {
		r.happened(runtime.TaskEnded, "")
		f.past.Add(id, health.RemovedRunner{Environment: r.Environment.ID, Events: r.events})
	}
	f.mu.Unlock()
	if r == nil {
		return nil
	}
	r.end()
	r.server.Close()
	<-r.ended
	r.programs.running.Wait()
	f.hint(r.Environment.ID)
	return nil
}

// Runners implements runtime.Cluster.
func (f *Fake) Runners(_ context.Context, env runtime.EnvironmentID) ([]runtime.Runner, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []runtime.Runner
	for _, r := range f.runners {
		if env == "" || env == r.Environment.ID {
			all = append(all, r.Runner)
		}
	}
	return all, nil
}

// Watch implements runtime.Cluster.
func (f *Fake) Watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	f.mu.Lock()
	f.watched++
	n := f.watched
	f.watchers[n] = hint
	f.mu.Unlock()
	hint("")
	<-ctx.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, n)
	return context.Cause(ctx)
}

// hint calls the watchers without the lock, so that they may call the cluster.
func (f *Fake) hint(id runtime.EnvironmentID) {
	f.mu.Lock()
	var hints []func(runtime.EnvironmentID)
	for _, h := range f.watchers {
		hints = append(hints, h)
	}
	f.mu.Unlock()
	for _, h := range hints {
		h(id)
	}
}

// Dial implements runtime.Cluster.
func (f *Fake) Dial(_ context.Context, id runtime.RunnerID) (net.Conn, error) {
	f.mu.Lock()
	r := f.runners[id]
	f.mu.Unlock()
	if r == nil {
		return nil, gone(id)
	}
	ours, theirs := net.Pipe()
	select {
	case r.streams <- theirs:
		return ours, nil
	case <-r.ended:
		return nil, gone(id)
	}
}

// Evidence implements runtime.Cluster.
func (f *Fake) Evidence(_ context.Context, id runtime.RunnerID) (runtime.Evidence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.runners[id]
	if r == nil {
		return runtime.Evidence{}, gone(id)
	}
	r.asked++
	return r.evidence, nil
}

// happened records an event. The caller holds mu.
func (r *fakeRunner) happened(kind runtime.TaskEventKind, detail string) {
	r.events = append(r.events, runtime.TaskEvent{At: time.Now(), Kind: kind, Detail: detail})
}

// TaskEvents implements runtime.Cluster.
func (f *Fake) TaskEvents(_ context.Context, id runtime.RunnerID) ([]runtime.TaskEvent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.runners[id]; r != nil {
		return slices.Clone(r.events), nil
	}
	gone, _ := f.past.Find(id)
	return gone.Events, nil
}

// Status implements runtime.Cluster.
func (f *Fake) Status(context.Context) (runtime.ClusterStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	status := runtime.ClusterStatus{Kind: "fake", Capacity: runtime.Capacity{CPUMHz: 4000, MemoryMiB: 4096, CPUMHzPromisable: 4000, MemoryMiBPromisable: 4096}}
	for _, r := range f.runners {
		status.Capacity.Take(r.Environment.Resources)
	}
	return status, nil
}

// Close removes all runners, and waits for their starts and programs. No Start or Remove may be
// running, and every hook must return.
func (f *Fake) Close() error {
	runners, err := f.Runners(context.Background(), "")
	for _, r := range runners {
		if err := f.Remove(context.Background(), r.ID); err != nil {
			return fmt.Errorf("remove %s: %w", r.ID, err)
		}
	}
	f.starting.Wait()
	return err
}

// gone returns RUNNER_GONE for a runner.
func gone(id runtime.RunnerID) error {
	return runtime.Errorf(runtime.CodeRunnerGone, "runner %s is gone", id)
}
