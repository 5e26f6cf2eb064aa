package engine

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// ExecutionUsage returns what an execution has used so far, a second ago at most, or in all once it
// is FINISHED; nil where it hasn't been started, or nobody can tell. It waits for an agent for a
// second at most. What it returns never falls from one call to the next.
func (e *Engine) ExecutionUsage(ctx context.Context, x runtime.Execution) (*runtime.Usage, error) {
	if x.State == runtime.ExecutionPending {
		return nil, nil
	}
	s := e.sessions.get(x.ID)
	if x.State == runtime.ExecutionRunning && s != nil {
		used, at := e.agents.Of(ctx, x.RunnerID)
		if at.IsZero() {
			return nil, nil
		}
		for _, one := range used.Executions {
			if one.ID != string(x.ID) {
				continue
			}
			if usage, runs := s.Use(one.Used, one.Wall); runs {
				return &usage, nil
			}
		}
		x = s.Execution()
	}
	if x.State == runtime.ExecutionRunning && s == nil { // it ended after x was read
		var err error
		if x, err = e.store.Execution(ctx, x.ID); err != nil {
			return nil, err
		}
	}
	if x.State != runtime.ExecutionFinished { // its end isn't stored yet
		return nil, nil
	}
	return &x.Usage, nil
}

// RunnerUsage returns what is used in a runner, a second ago at most; nil where nobody can tell. It
// waits for its agent for a second at most.
func (e *Engine) RunnerUsage(ctx context.Context, r runtime.Runner) *runtime.RunnerUsage {
	if r.State.Before(runtime.RunnerIdle) || !r.State.Before(runtime.RunnerStopping) {
		return nil
	}
	used, at := e.agents.Of(ctx, r.ID)
	if at.IsZero() {
		return nil
	}
	resources := r.Environment.Resources
	return &runtime.RunnerUsage{
		CPU: used.Runner.User + used.Runner.System, At: at,
		Memory: used.Runner.Memory, MemoryLimit: int64(resources.MemoryMiB) << 20,
		Processes: used.Runner.Processes, ProcessLimit: resources.Processes,
	}
}
