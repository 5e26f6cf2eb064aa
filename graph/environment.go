package graph

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
)

func (r query) Environments(context.Context) ([]runtime.Environment, error) {
	return r.engine.Environments(), nil
}

func (r query) Environment(_ context.Context, id string) (*runtime.Environment, error) {
	env, ok := r.engine.Environment(runtime.EnvironmentID(id))
	if !ok {
		return nil, nil
	}
	return &env, nil
}

func (r mutation) PutEnvironment(ctx context.Context, in generated.PutEnvironmentInput) (generated.PutEnvironmentPayload, error) {
	env, created, err := r.engine.PutEnvironment(ctx, putInput(in))
	return generated.PutEnvironmentPayload{Environment: env, Created: created}, err
}

func putInput(in generated.PutEnvironmentInput) engine.PutEnvironmentInput {
	out := engine.PutEnvironmentInput{
		ID:               runtime.EnvironmentID(in.ID),
		IfRevision:       in.IfRevision,
		Image:            in.Image,
		PoolSize:         in.PoolSize,
		Isolation:        in.Isolation,
		Runtime:          in.Runtime,
		Variables:        in.Variables,
		Warm:             in.Warm,
		DefaultTimeLimit: in.DefaultTimeLimit,
		OutputLimit:      in.OutputLimit,
	}
	if limits := in.Resources; limits != nil {
		out.CPUMHz, out.MemoryMiB = limits.CPUMHz, limits.MemoryMiB
		out.Processes, out.WorkspaceMiB = limits.Processes, limits.WorkspaceMiB
	}
	if network := in.Network; network != nil {
		out.NetworkAccess, out.ExposedPorts = network.Access, network.ExposedPorts
		out.Allow, out.AllowNames, out.BandwidthMbit = network.Allow, network.AllowNames, network.BandwidthMbit
	}
	return out
}

func (r mutation) DeleteEnvironment(ctx context.Context, in generated.DeleteEnvironmentInput) (generated.DeleteEnvironmentPayload, error) {
	deleted, err := r.engine.DeleteEnvironment(ctx, runtime.EnvironmentID(in.ID), orZero(in.EndClaimed))
	return generated.DeleteEnvironmentPayload{Deleted: deleted}, err
}

func (r environment) DefaultTimeLimit(_ context.Context, env *runtime.Environment) (int, error) {
	return int(env.DefaultTimeLimit / time.Second), nil
}

// Pool shows an environment that was deleted meanwhile as a deleted pool.
func (r environment) Pool(_ context.Context, env *runtime.Environment) (runtime.PoolStatus, error) {
	status, ok := r.engine.PoolStatus(env.ID)
	if !ok {
		return runtime.PoolStatus{EnvironmentID: env.ID, Revision: env.Revision, Deleted: true}, nil
	}
	return status, nil
}

func (r environment) StartDurations(_ context.Context, env *runtime.Environment) (model.Durations, error) {
	return model.NewDurations(r.engine.StartDurations(env.ID)), nil
}

func (r environment) ClaimStats(_ context.Context, env *runtime.Environment) (model.ClaimStats, error) {
	return model.NewClaimStats(r.engine.ClaimStats(env.ID)), nil
}

func (r environment) PoolHistory(_ context.Context, env *runtime.Environment) (model.PoolHistory, error) {
	return model.NewPoolHistory(r.engine.PoolHistory(env.ID)), nil
}

func (r poolStatus) Reason(_ context.Context, status *runtime.PoolStatus) (*string, error) {
	return orNull(status.Reason), nil
}

func (r poolStatus) Image(_ context.Context, status *runtime.PoolStatus) (*runtime.ImageStatus, error) {
	return orNull(status.Image), nil
}

func (r imageStatus) Reason(_ context.Context, status *runtime.ImageStatus) (*string, error) {
	return orNull(status.Reason), nil
}

func (r subscription) PoolStatus(ctx context.Context, id *string) (<-chan runtime.PoolStatus, error) {
	return r.engine.WatchPools(ctx, runtime.EnvironmentID(orZero(id)))
}

func (r query) PoolAlerts(context.Context) ([]runtime.PoolAlert, error) {
	return r.engine.PoolAlerts(), nil
}

func (r subscription) PoolAlerts(ctx context.Context, id *string) (<-chan runtime.PoolAlert, error) {
	return r.engine.WatchPoolAlerts(ctx, runtime.EnvironmentID(orZero(id)))
}
