package guard

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/engine"
)

// Environments returns the environments that the caller sees, ordered by id.
func (g *Guard) Environments(ctx context.Context) ([]runtime.Environment, error) {
	p, err := g.caller(ctx, "environments")
	if err != nil {
		return nil, err
	}
	seen := []runtime.Environment{}
	for _, env := range g.engine.Environments() {
		if p.SeesEnvironment(env) {
			seen = append(seen, env)
		}
	}
	return seen, nil
}

// Environment returns an environment, and whether it exists for the caller.
func (g *Guard) Environment(ctx context.Context, id runtime.EnvironmentID) (runtime.Environment, bool, error) {
	return g.FirstEnvironment(ctx, []runtime.EnvironmentID{id})
}

// FirstEnvironment returns the first of ids that exists for the caller, and whether any does.
func (g *Guard) FirstEnvironment(ctx context.Context, ids []runtime.EnvironmentID) (runtime.Environment, bool, error) {
	p, err := g.caller(ctx, "environment")
	if err != nil {
		return runtime.Environment{}, false, err
	}
	for _, id := range ids {
		if env, ok := g.engine.Environment(id); ok && p.SeesEnvironment(env) {
			return env, true, nil
		}
	}
	return runtime.Environment{}, false, nil
}

// PutEnvironment creates an environment for the caller's tenant, or changes one of that tenant. Ids
// are unique across tenants: it returns CONFLICT if another tenant has this one.
func (g *Guard) PutEnvironment(ctx context.Context, in engine.PutEnvironmentInput) (env runtime.Environment, created bool, err error) {
	defer func() { record(ctx, g, "putEnvironment", ofEnvironment, in.ID, owner(env.Tenant, err), err) }()
	p, err := g.caller(ctx, "putEnvironment")
	if err != nil {
		return runtime.Environment{}, false, err
	}
	if in.Shared != nil && *in.Shared && !p.AllTenants {
		if stored, ok := g.engine.Environment(in.ID); !ok || !stored.Shared {
			return runtime.Environment{}, false, runtime.Errorf(runtime.CodeForbidden, "only a token for all tenants may share an environment, because other tenants' programs then run in it")
		}
	}
	in.MayChange = func(env runtime.Environment) bool { return p.SeesTenant(env.Tenant) }
	in.TenantExists = func(id runtime.TenantID) bool { _, there := g.book.Tenant(id); return there }
	switch {
	case in.Tenant == nil && !p.AllTenants:
		in.Tenant = &p.Tenant
	case in.Tenant == nil:
	case !p.SeesTenant(*in.Tenant):
		return runtime.Environment{}, false, runtime.Invalid("tenant", "must be the token's tenant, or left out")
	}
	return g.engine.PutEnvironment(ctx, in)
}

// DeleteEnvironment deletes an environment of the caller's tenant; see [engine.Engine.DeleteEnvironment].
func (g *Guard) DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID, endClaimed bool) (deleted bool, err error) {
	var outcome error
	defer g.recording(ctx, "deleteEnvironment", ofEnvironment, string(id))(&outcome)
	p, outcome := g.caller(ctx, "deleteEnvironment")
	if outcome != nil {
		return false, outcome
	}
	deleted, err = g.engine.DeleteEnvironment(ctx, id, endClaimed, func(env runtime.Environment) bool { return p.SeesTenant(env.Tenant) })
	if outcome = err; err == nil && !deleted {
		outcome = engine.NoEnvironment(id)
	}
	return deleted, err
}

// PoolStatus, StartDurations, PoolHistory and ClaimStats check nothing: the environment must come
// from a call that did.

// PoolStatus returns a pool's status; see [engine.Engine.PoolStatus].
func (g *Guard) PoolStatus(id runtime.EnvironmentID) (runtime.PoolStatus, bool) {
	return g.engine.PoolStatus(id)
}

// StartDurations returns how long starts took; see [engine.Engine.StartDurations].
func (g *Guard) StartDurations(id runtime.EnvironmentID) runtime.Distribution {
	return g.engine.StartDurations(id)
}

// PoolHistory returns a pool's samples; see [engine.Engine.PoolHistory].
func (g *Guard) PoolHistory(id runtime.EnvironmentID) []runtime.PoolSample {
	return g.engine.PoolHistory(id)
}

// ClaimStats returns the counters of claims; see [engine.Engine.ClaimStats].
func (g *Guard) ClaimStats(id runtime.EnvironmentID) runtime.ClaimStats {
	return g.engine.ClaimStats(id)
}

// PoolAlerts returns the standing alerts of environments that the caller sees.
func (g *Guard) PoolAlerts(ctx context.Context) ([]runtime.PoolAlert, error) {
	p, err := g.caller(ctx, "poolAlerts")
	if err != nil {
		return nil, err
	}
	return g.engine.PoolAlerts(p.SeesEnvironment), nil
}

// PoolAlertHistory returns past alerts of environments that the caller sees; see
// [engine.Engine.PoolAlertHistory].
func (g *Guard) PoolAlertHistory(ctx context.Context) ([]runtime.PoolAlert, error) {
	p, err := g.caller(ctx, "poolAlertHistory")
	if err != nil {
		return nil, err
	}
	return g.engine.PoolAlertHistory(p.SeesEnvironment), nil
}

// WatchPools follows the pools of environments that the caller sees; see [engine.Engine.WatchPools].
func (g *Guard) WatchPools(ctx context.Context, id runtime.EnvironmentID) (<-chan runtime.PoolStatus, error) {
	p, err := g.watches(ctx, "poolStatus", id)
	if err != nil {
		return nil, err
	}
	return g.engine.WatchPools(ctx, id, p.SeesEnvironment)
}

// WatchPoolAlerts follows the alerts of environments that the caller sees; see
// [engine.Engine.WatchPoolAlerts].
func (g *Guard) WatchPoolAlerts(ctx context.Context, id runtime.EnvironmentID) (<-chan runtime.PoolAlert, error) {
	p, err := g.watches(ctx, "poolAlerts", id)
	if err != nil {
		return nil, err
	}
	return g.engine.WatchPoolAlerts(ctx, id, p.SeesEnvironment)
}

// watches returns the caller if it may watch an environment, or all for "".
func (g *Guard) watches(ctx context.Context, op access.Operation, id runtime.EnvironmentID) (access.Principal, error) {
	p, err := g.caller(ctx, op)
	if err == nil && id != "" {
		err = g.existing(p, id)
	}
	return p, err
}

// existing returns ENVIRONMENT_NOT_FOUND for an environment that exists but that the caller doesn't
// see. For a missing one the engine returns it.
func (g *Guard) existing(p access.Principal, id runtime.EnvironmentID) error {
	if env, ok := g.engine.Environment(id); ok && !p.SeesEnvironment(env) {
		return engine.NoEnvironment(id)
	}
	return nil
}
