package guard

import (
	"context"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
)

// Health returns the state of the server and of its components. A caller for one tenant gets the
// pools that it sees, and only the status of the other components.
func (g *Guard) Health(ctx context.Context) (engine.Health, error) {
	p, err := g.caller(ctx, "health")
	if err != nil {
		return engine.Health{}, err
	}
	health := g.engine.Health(ctx)
	if p.AllTenants {
		return health, nil
	}
	health.Attacks = nil
	health.Components = slices.DeleteFunc(slices.Clone(health.Components), func(c engine.ComponentHealth) bool {
		id, isPool := strings.CutPrefix(c.Name, engine.PoolComponent)
		env, ok := g.engine.Environment(runtime.EnvironmentID(id))
		return isPool && (!ok || !p.SeesEnvironment(env))
	})
	// The status must not depend on pools that the caller doesn't see.
	health.Status = engine.HealthOK
	for i, c := range health.Components {
		if !strings.HasPrefix(c.Name, engine.PoolComponent) {
			health.Components[i].Message = ""
		}
		health.Status = health.Status.Or(c.Status)
	}
	return health, nil
}

// Activity returns counts for the caller's tenant, or for all; see [engine.Engine.Activity].
func (g *Guard) Activity(ctx context.Context) (runtime.Activity, error) {
	p, err := g.caller(ctx, "activity")
	if err != nil {
		return runtime.Activity{}, err
	}
	return g.engine.Activity(ctx, scope(p)), nil
}

// ClusterStatus returns the cluster's status; see [engine.Engine.ClusterStatus].
func (g *Guard) ClusterStatus(ctx context.Context) (runtime.ClusterStatus, error) {
	if _, err := g.caller(ctx, "cluster"); err != nil {
		return runtime.ClusterStatus{}, err
	}
	return g.engine.ClusterStatus(ctx)
}

// Evaluations returns the cluster's evaluations; see [engine.Engine.Evaluations].
func (g *Guard) Evaluations(ctx context.Context, filter runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	if _, err := g.caller(ctx, "cluster"); err != nil {
		return nil, 0, err
	}
	return g.engine.Evaluations(ctx, filter)
}

// Allocations returns the cluster's allocations; see [engine.Engine.Allocations].
func (g *Guard) Allocations(ctx context.Context, filter runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	if _, err := g.caller(ctx, "cluster"); err != nil {
		return nil, 0, err
	}
	return g.engine.Allocations(ctx, filter)
}

// SetDraining starts or ends draining the cluster; see [engine.Engine.SetDraining].
func (g *Guard) SetDraining(ctx context.Context, draining bool) (err error) {
	defer g.recording(ctx, "drainCluster", ofCluster, "")(&err)
	if _, err := g.caller(ctx, "drainCluster"); err != nil {
		return err
	}
	return g.engine.SetDraining(ctx, draining)
}
