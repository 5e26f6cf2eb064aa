package graph

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/runtime"
)

func (r mutation) DrainCluster(ctx context.Context, in generated.DrainClusterInput) (generated.DrainClusterPayload, error) {
	if err := r.engine.Server.SetDraining(ctx, in.Draining); err != nil {
		return generated.DrainClusterPayload{}, err
	}
	status, err := r.engine.Server.ClusterStatus(ctx)
	return generated.DrainClusterPayload{Cluster: status}, err
}

func (r cluster) Evaluations(
	ctx context.Context, _ *runtime.ClusterStatus, env, runner *string, status []runtime.EvaluationStatus, first *int, after *string,
) (model.EvaluationConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.EvaluationConnection{}, err
	}
	found, total, err := r.engine.Server.Evaluations(ctx, scheduling(env, runner, status, page))
	key := func(evaluation runtime.Evaluation) string { return string(evaluation.ID) }
	return model.LoadedPage(found, key, page, total), err
}

func (r cluster) Allocations(
	ctx context.Context, _ *runtime.ClusterStatus, env, runner *string, status []runtime.AllocationStatus, first *int, after *string,
) (model.AllocationConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.AllocationConnection{}, err
	}
	found, total, err := r.engine.Server.Allocations(ctx, scheduling(env, runner, status, page))
	key := func(allocation runtime.Allocation) string { return string(allocation.ID) }
	return model.LoadedPage(found, key, page, total), err
}

func (r cluster) TaskEvents(ctx context.Context, _ *runtime.ClusterStatus, id string) ([]runtime.TaskEvent, error) {
	return r.engine.Runners.TaskEvents(ctx, runtime.RunnerID(id))
}

// scheduling returns a filter for one page. It requests one entry more, which shows whether there
// is another page.
func scheduling[S ~string](env, runner *string, status []S, page model.Page) runtime.SchedulingFilter[S] {
	return runtime.SchedulingFilter[S]{
		EnvironmentID: runtime.EnvironmentID(orZero(env)), RunnerID: runtime.RunnerID(orZero(runner)), Statuses: status,
		After: page.After, Limit: page.First + 1,
	}
}

func (r evaluation) WaitMs(_ context.Context, of *runtime.Evaluation) (float64, error) {
	return model.Milliseconds(of.Waited(time.Now())), nil
}

func (r evaluation) WorkMs(_ context.Context, of *runtime.Evaluation) (*float64, error) {
	worked, ok := of.Worked()
	if !ok {
		return nil, nil
	}
	return new(model.Milliseconds(worked)), nil
}
