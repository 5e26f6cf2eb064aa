package graph

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// Usage returns null until the execution has ended.
func (r execution) Usage(_ context.Context, of *runtime.Execution) (*runtime.Usage, error) {
	if of.State != runtime.ExecutionFinished {
		return nil, nil
	}
	return &of.Usage, nil
}

func (r execution) UsageNow(ctx context.Context, of *runtime.Execution) (*runtime.UsageNow, error) {
	return r.engine.Executions.Usage(ctx, *of), nil
}

func (r usage) WallMs(_ context.Context, of *runtime.Usage) (int64, error) {
	return of.Wall.Milliseconds(), nil
}

func (r usage) UserMs(_ context.Context, of *runtime.Usage) (int64, error) {
	return of.User.Milliseconds(), nil
}

func (r usage) SystemMs(_ context.Context, of *runtime.Usage) (int64, error) {
	return of.System.Milliseconds(), nil
}

func (r usage) PeakProcesses(_ context.Context, of *runtime.Usage) (*int, error) {
	return orNull(of.PeakProcesses), nil
}

func (r usage) PeakMemory(_ context.Context, of *runtime.Usage) (*int64, error) {
	return orNull(of.PeakMemory), nil
}

func (r usageNow) WallMs(_ context.Context, of *runtime.UsageNow) (int64, error) {
	return of.Wall.Milliseconds(), nil
}

func (r usageNow) UserMs(_ context.Context, of *runtime.UsageNow) (int64, error) {
	return of.User.Milliseconds(), nil
}

func (r usageNow) SystemMs(_ context.Context, of *runtime.UsageNow) (int64, error) {
	return of.System.Milliseconds(), nil
}

func (r usageNow) Memory(_ context.Context, of *runtime.UsageNow) (*int64, error) {
	return orNull(of.Memory), nil
}

func (r usageNow) PeakMemory(_ context.Context, of *runtime.UsageNow) (*int64, error) {
	return orNull(of.PeakMemory), nil
}

func (r usageNow) Processes(_ context.Context, of *runtime.UsageNow) (*int, error) {
	return orNull(of.Processes), nil
}

func (r usageNow) PeakProcesses(_ context.Context, of *runtime.UsageNow) (*int, error) {
	return orNull(of.PeakProcesses), nil
}

func (r runner) Usage(ctx context.Context, of *runtime.Runner) (*runtime.RunnerUsage, error) {
	return r.engine.Runners.Usage(ctx, *of), nil
}

func (r runnerUsage) CPUMs(_ context.Context, of *runtime.RunnerUsage) (int64, error) {
	return of.CPU.Milliseconds(), nil
}

func (r runnerUsage) Memory(_ context.Context, of *runtime.RunnerUsage) (*int64, error) {
	return orNull(of.Memory), nil
}

func (r runnerUsage) Processes(_ context.Context, of *runtime.RunnerUsage) (*int, error) {
	return orNull(of.Processes), nil
}
