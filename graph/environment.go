package graph

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/request"
)

func (r query) Environments(ctx context.Context) ([]runtime.Environment, error) {
	found, err := r.engine.Environments.List(ctx)
	if err == nil {
		err = transport.Charge(ctx, rowMemory*int64(len(found)))
	}
	return found, err
}

func (r query) Environment(ctx context.Context, id string) (*runtime.Environment, error) {
	env, ok, err := r.engine.Environments.Get(ctx, runtime.EnvironmentID(id))
	if err != nil || !ok {
		return nil, err
	}
	return &env, nil
}

func (r mutation) PutEnvironment(ctx context.Context, in generated.PutEnvironmentInput) (generated.PutEnvironmentPayload, error) {
	put, err := putInput(in)
	if err != nil {
		return generated.PutEnvironmentPayload{}, err
	}
	env, created, err := r.engine.Environments.Put(ctx, put)
	return generated.PutEnvironmentPayload{Environment: env, Created: created}, err
}

// putInput converts an input for the engine. A nil field keeps the stored value.
func putInput(in generated.PutEnvironmentInput) (request.Environment, error) {
	tenant, err := ofTenant(in.Tenant)
	out := request.Environment{
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
		Shared:           in.Shared,
		Tenant:           tenant,
	}
	if limits := in.Resources; limits != nil {
		out.CPUMHz, out.MemoryMiB = limits.CPUMHz, limits.MemoryMiB
		out.Processes, out.WorkspaceMiB = limits.Processes, limits.WorkspaceMiB
	}
	if network := in.Network; network != nil {
		out.NetworkAccess, out.ExposedPorts = network.Access, network.ExposedPorts
		out.Allow, out.AllowNames, out.BandwidthMbit = network.Allow, network.AllowNames, network.BandwidthMbit
	}
	return out, err
}

func (r mutation) DeleteEnvironment(ctx context.Context, in generated.DeleteEnvironmentInput) (generated.DeleteEnvironmentPayload, error) {
	deleted, err := r.engine.Environments.Delete(ctx, runtime.EnvironmentID(in.ID), orZero(in.EndClaimed))
	return generated.DeleteEnvironmentPayload{Deleted: deleted}, err
}

func (r environment) DefaultTimeLimit(_ context.Context, env *runtime.Environment) (int, error) {
	return int(env.DefaultTimeLimit / time.Second), nil
}

// Pool returns a deleted pool for an environment that was deleted meanwhile.
func (r environment) Pool(_ context.Context, env *runtime.Environment) (runtime.PoolStatus, error) {
	status, ok := r.engine.Environments.PoolStatus(*env)
	if !ok {
		return runtime.PoolStatus{EnvironmentID: env.ID, Revision: env.Revision, Deleted: true}, nil
	}
	return status, nil
}

func (r environment) StartDurations(_ context.Context, env *runtime.Environment) (runtime.Distribution, error) {
	return r.engine.Environments.StartDurations(*env), nil
}

func (r environment) ClaimStats(_ context.Context, env *runtime.Environment) (runtime.ClaimStats, error) {
	return r.engine.Environments.ClaimStats(*env), nil
}

func (r environment) PoolHistory(_ context.Context, env *runtime.Environment) (model.PoolHistory, error) {
	return model.NewPoolHistory(r.engine.Environments.PoolHistory(*env)), nil
}

func (r subscription) PoolStatus(ctx context.Context, id *string) (<-chan runtime.PoolStatus, error) {
	return r.engine.Environments.WatchPools(ctx, runtime.EnvironmentID(orZero(id)))
}

func (r query) PoolAlerts(ctx context.Context) ([]runtime.PoolAlert, error) {
	return r.engine.Environments.Alerts(ctx)
}

func (r query) PoolAlertHistory(ctx context.Context) ([]runtime.PoolAlert, error) {
	return r.engine.Environments.AlertHistory(ctx)
}

func (r query) Activity(ctx context.Context) (runtime.Activity, error) {
	return r.engine.Server.Activity(ctx)
}

func (r subscription) PoolAlerts(ctx context.Context, id *string) (<-chan runtime.PoolAlert, error) {
	return r.engine.Environments.WatchAlerts(ctx, runtime.EnvironmentID(orZero(id)))
}

func (r query) Languages(ctx context.Context) ([]language.Recipe, error) {
	if _, err := r.engine.Callers.Allowed(ctx, "languages"); err != nil {
		return nil, err
	}
	return r.languages.All(), nil
}

// EnvironmentID returns the first of the language's environments that exists for the caller; null
// if none does.
func (r recipe) EnvironmentID(ctx context.Context, of *language.Recipe) (*string, error) {
	env, _, err := r.engine.Environments.First(ctx, of.Environments)
	return orNull(string(env.ID)), err
}

// versionPatience is how long a caller waits for a version that is being measured.
const versionPatience = 3 * time.Second

// Version returns null if the version is unknown, or isn't known within versionPatience.
func (r recipe) Version(ctx context.Context, of *language.Recipe) (*string, error) {
	env, there, err := r.engine.Environments.First(ctx, of.Environments)
	if err != nil || !there || len(of.Version) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	found, _ := r.measured.Versions(ctx, env)
	return orNull(found[of.ID]), nil
}
