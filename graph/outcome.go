package graph

import (
	"context"

	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/runtime"
)

func (r execution) Runner(ctx context.Context, of *runtime.Execution) (*runtime.Runner, error) {
	return r.existingRunner(ctx, of.RunnerID)
}

func (r execution) BatchID(_ context.Context, of *runtime.Execution) (*string, error) {
	if of.Batch == nil {
		return nil, nil
	}
	return orNull(string(of.Batch.ID)), nil
}

func (r execution) CaseIndex(_ context.Context, of *runtime.Execution) (*int, error) {
	if of.Batch == nil {
		return nil, nil
	}
	return model.CaseIndex(of.Batch.Case), nil
}

// ExitCode is null without a code, since 0 would look like a success.
func (r execution) ExitCode(_ context.Context, of *runtime.Execution) (*int, error) {
	if of.End.Outcome != runtime.OutcomeExited {
		return orNull(of.End.ExitCode), nil
	}
	return &of.End.ExitCode, nil
}

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

func (r runner) Usage(ctx context.Context, of *runtime.Runner) (*runtime.RunnerUsage, error) {
	return r.engine.Runners.Usage(ctx, *of), nil
}
