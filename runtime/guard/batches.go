package guard

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/engine"
)

// StartBatch starts a batch in a runner that the caller sees; see [engine.Engine.StartBatch].
func (g *Guard) StartBatch(ctx context.Context, in engine.StartInput, of engine.BatchInput) (b runtime.Batch, x runtime.Execution, err error) {
	defer func() { record(ctx, g, "startExecution", ofBatch, b.ID, owner(in.Tenant, err), err) }()
	asked := in.RunnerID
	in, err = g.starting(ctx, in)
	if err != nil {
		return runtime.Batch{}, runtime.Execution{}, err
	}
	b, x, err = g.engine.StartBatch(ctx, in, of)
	return b, x, gone(err, asked, in.RunnerID)
}

// RunBatch runs a batch for the caller's tenant; see [engine.Engine.RunBatch].
func (g *Guard) RunBatch(ctx context.Context, in engine.RunInput, of engine.BatchInput) (b runtime.Batch, x runtime.Execution, err error) {
	defer func() { record(ctx, g, "run", ofBatch, b.ID, owner(in.Tenant, err), err) }()
	asked := in.EnvironmentID
	in, err = g.running(ctx, in)
	if err != nil {
		return runtime.Batch{}, runtime.Execution{}, err
	}
	b, x, err = g.engine.RunBatch(ctx, in, of)
	return b, x, noEnvironment(err, asked, in.EnvironmentID)
}

// Batch returns a batch that the caller sees, or BATCH_NOT_FOUND.
func (g *Guard) Batch(ctx context.Context, id runtime.BatchID) (runtime.Batch, error) {
	if err := g.allowBatch(ctx, "batch", id); err != nil {
		return runtime.Batch{}, err
	}
	return g.engine.Batch(ctx, id)
}

// Batches returns batches of the caller's tenant, or of all; see [engine.Engine.Batches].
func (g *Guard) Batches(ctx context.Context, filter engine.BatchFilter, first int, after runtime.BatchID) ([]runtime.Batch, int, error) {
	p, err := g.caller(ctx, "batches")
	if err != nil {
		return nil, 0, err
	}
	filter.Tenant = scope(p)
	return g.engine.Batches(ctx, filter, first, after)
}

// BatchCases returns the cases of a batch. It checks nothing: b must come from a call that did. See
// [engine.Engine.BatchCases].
func (g *Guard) BatchCases(ctx context.Context, b runtime.Batch, first, end int) ([]runtime.Case, error) {
	return g.engine.BatchCases(ctx, b, first, end)
}

// BatchBuild returns the build of a batch. It checks nothing: b must come from a call that did. See
// [engine.Engine.BatchBuild].
func (g *Guard) BatchBuild(ctx context.Context, b runtime.Batch) (*runtime.Execution, error) {
	return g.engine.BatchBuild(ctx, b)
}

// BatchEvents opens the events of a batch that the caller sees; see [engine.Engine.BatchEvents].
func (g *Guard) BatchEvents(ctx context.Context, id runtime.BatchID, after string) (*batch.Reader, error) {
	if err := g.allowBatch(ctx, "batchEvents", id); err != nil {
		return nil, err
	}
	return g.engine.BatchEvents(ctx, id, after)
}

// CancelBatch cancels a batch that the caller sees; see [engine.Engine.CancelBatch].
func (g *Guard) CancelBatch(ctx context.Context, id runtime.BatchID) (_ runtime.Batch, err error) {
	defer g.recording(ctx, "cancelBatch", ofBatch, string(id))(&err)
	if err = g.allowBatch(ctx, "cancelBatch", id); err != nil {
		return runtime.Batch{}, err
	}
	return g.engine.CancelBatch(ctx, id)
}
