package engine

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// ExecutionUsage returns what an execution has used so far. It returns nil if the execution isn't
// RUNNING, or if its agent doesn't answer within a second. See [usage.Agents] for the age of the data.
func (e *Engine) ExecutionUsage(ctx context.Context, x runtime.Execution) *runtime.UsageNow {
	s := e.sessions.get(x.ID)
	if s == nil || x.State != runtime.ExecutionRunning {
		return nil
	}
	used, at := e.agents.Usage(ctx, x.RunnerID, x.Tenant)
	one, runs := used.Executions[string(x.ID)]
	if !runs {
		return nil
	}
	return &runtime.UsageNow{
		At: at, Wall: one.Wall, User: one.User, System: one.System, OutputBytes: s.Received(),
		Memory: one.Memory, PeakMemory: one.PeakMemory, Processes: one.Processes, PeakProcesses: one.PeakProcesses,
	}
}

// RunnerUsage returns what is used in a runner. It returns nil if the runner isn't CLAIMED, or if its
// agent doesn't answer within a second. See [usage.Agents] for the age of the data.
func (e *Engine) RunnerUsage(ctx context.Context, r runtime.Runner) *runtime.RunnerUsage {
	if r.State != runtime.RunnerClaimed {
		return nil
	}
	used, at := e.agents.Usage(ctx, r.ID, r.Tenant())
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
