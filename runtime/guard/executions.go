package guard

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/store"
)

// Start starts an execution in a runner that the caller sees; see [engine.Engine.Start].
func (g *Guard) Start(ctx context.Context, in engine.StartInput) (x runtime.Execution, err error) {
	defer func() { record(ctx, g, "startExecution", ofExecution, x.ID, owner(in.Tenant, err), err) }()
	asked := in.RunnerID
	in, err = g.starting(ctx, in)
	if err != nil {
		return runtime.Execution{}, err
	}
	x, err = g.engine.Start(ctx, in)
	return x, gone(err, asked, in.RunnerID)
}

// gone names the caller's runner in err, if starting had replaced it.
func gone(err error, asked, used runtime.RunnerID) error {
	if used != asked && runtime.CodeOf(err) == runtime.CodeRunnerGone {
		return runtime.Gone(asked)
	}
	return err
}

// starting returns the engine's input for a new execution, with the runner's tenant. It replaces a
// runner that the caller doesn't see by an id that never existed. The engine refuses that id like
// one of a runner that is gone, but only after checking whether the key was used before.
func (g *Guard) starting(ctx context.Context, in engine.StartInput) (engine.StartInput, error) {
	p, err := g.caller(ctx, "startExecution")
	if err != nil {
		return in, err
	}
	if p.Grant != nil && in.Privileged {
		return in, runtime.Errorf(runtime.CodeForbidden, "a grant can't start privileged executions")
	}
	in.Tenant, in.Keys = p.Tenant, p.Keys()
	r, ok := g.engine.Runner(in.RunnerID)
	switch {
	case ok && !p.SeesRunner(r), !ok && p.Grant != nil && p.Grant.Runner != in.RunnerID:
		in.RunnerID = runtime.NewRunnerID()
	case ok:
		in.Tenant = r.Tenant()
	}
	return in, nil
}

// Execute runs a command in a new runner for the caller's tenant; see [engine.Engine.Execute].
func (g *Guard) Execute(ctx context.Context, in engine.RunInput) (x runtime.Execution, err error) {
	defer func() { record(ctx, g, "run", ofExecution, x.ID, owner(in.Tenant, err), err) }()
	asked := in.EnvironmentID
	in, err = g.running(ctx, in)
	if err != nil {
		return runtime.Execution{}, err
	}
	x, err = g.engine.Execute(ctx, in)
	return x, noEnvironment(err, asked, in.EnvironmentID)
}

// running checks that the caller may run programs, and sets the input's tenant, environment and key
// space.
func (g *Guard) running(ctx context.Context, in engine.RunInput) (engine.RunInput, error) {
	p, err := g.caller(ctx, "run")
	if err == nil {
		in.Tenant, in.EnvironmentID = g.claimant(p, in.EnvironmentID)
		in.Keys = p.Keys()
	}
	return in, err
}

// Execution returns an execution that the caller sees, once it has ended or after wait.
func (g *Guard) Execution(ctx context.Context, id runtime.ExecutionID, wait time.Duration) (runtime.Execution, error) {
	p, err := g.caller(ctx, "execution")
	if err != nil {
		return runtime.Execution{}, err
	}
	x, err := g.execution(ctx, p, id)
	if err != nil || wait == 0 || x.State == runtime.ExecutionFinished {
		return x, err
	}
	return g.engine.Execution(ctx, id, wait)
}

// ExecutionUsage measures an execution. It checks nothing: x must come from a call that did. See
// [engine.Engine.ExecutionUsage].
func (g *Guard) ExecutionUsage(ctx context.Context, x runtime.Execution) *runtime.UsageNow {
	return g.engine.ExecutionUsage(ctx, x)
}

// Executions returns executions of the caller's tenant, or of all; see [engine.Engine.Executions].
func (g *Guard) Executions(ctx context.Context, filter engine.ExecutionFilter, first int, after runtime.ExecutionID) (store.ExecutionPage, error) {
	p, err := g.caller(ctx, "executions")
	if err != nil {
		return store.ExecutionPage{}, err
	}
	filter.Tenant = scope(p)
	return g.engine.Executions(ctx, filter, first, after)
}

// Events opens the events of an execution that the caller sees; see [engine.Engine.Events].
func (g *Guard) Events(ctx context.Context, id runtime.ExecutionID, after string) (*events.Reader, error) {
	if err := g.AllowExecution(ctx, "executionEvents", id); err != nil {
		return nil, err
	}
	return g.engine.Events(ctx, id, after)
}

// Output opens a page of an execution's output, if the caller sees it; see [engine.Engine.Output].
func (g *Guard) Output(ctx context.Context, id runtime.ExecutionID, after string, maxBytes int) (*events.Page, error) {
	if err := g.AllowExecution(ctx, "output", id); err != nil {
		return nil, err
	}
	return g.engine.Output(ctx, id, after, maxBytes)
}

// Lines returns lines of an execution's output, if the caller sees it; see [engine.Engine.Lines].
func (g *Guard) Lines(ctx context.Context, id runtime.ExecutionID, query engine.LineQuery) (engine.LinePage, error) {
	if err := g.AllowExecution(ctx, "output", id); err != nil {
		return engine.LinePage{}, err
	}
	return g.engine.Lines(ctx, id, query)
}

// OpenOutput opens an execution's output, if the caller sees it; see [engine.Engine.OpenOutput].
func (g *Guard) OpenOutput(ctx context.Context, id runtime.ExecutionID, stream runtime.Stream) (*engine.Output, error) {
	if err := g.AllowExecution(ctx, "output", id); err != nil {
		return nil, err
	}
	return g.engine.OpenOutput(ctx, id, stream)
}

// RenewLease renews the lease of an execution or batch that the caller sees; see
// [engine.Engine.RenewLease].
func (g *Guard) RenewLease(ctx context.Context, id string) (bool, error) {
	err := g.allowBatch(ctx, "renewLease", runtime.BatchID(id))
	if runtime.CodeOf(err) == runtime.CodeBatchNotFound {
		err = g.AllowExecution(ctx, "renewLease", runtime.ExecutionID(id))
	}
	return err == nil && g.engine.RenewLease(id), err
}

// WriteStdin writes to the stdin of an execution that the caller sees; see [engine.Engine.WriteStdin].
func (g *Guard) WriteStdin(ctx context.Context, in engine.StdinInput) (int64, error) {
	if err := g.AllowExecution(ctx, "writeStdin", in.ExecutionID); err != nil {
		return 0, err
	}
	return g.engine.WriteStdin(ctx, in)
}

// Resize resizes the terminal of an execution that the caller sees; see [engine.Engine.Resize].
func (g *Guard) Resize(ctx context.Context, id runtime.ExecutionID, size runtime.TerminalSize) (runtime.Execution, error) {
	if err := g.AllowExecution(ctx, "resizeTerminal", id); err != nil {
		return runtime.Execution{}, err
	}
	return g.engine.Resize(ctx, id, size)
}

// Signal sends a signal to an execution that the caller sees; see [engine.Engine.Signal].
func (g *Guard) Signal(ctx context.Context, id runtime.ExecutionID, signal string) (_ runtime.Execution, err error) {
	defer g.recording(ctx, "signalExecution", ofExecution, string(id))(&err)
	if err := g.AllowExecution(ctx, "signalExecution", id); err != nil {
		return runtime.Execution{}, err
	}
	return g.engine.Signal(ctx, id, signal)
}

// Cancel cancels an execution that the caller sees; see [engine.Engine.Cancel].
func (g *Guard) Cancel(ctx context.Context, id runtime.ExecutionID) (_ runtime.Execution, err error) {
	defer g.recording(ctx, "cancelExecution", ofExecution, string(id))(&err)
	if err := g.AllowExecution(ctx, "cancelExecution", id); err != nil {
		return runtime.Execution{}, err
	}
	return g.engine.Cancel(ctx, id)
}
