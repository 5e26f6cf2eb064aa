package jobe

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// programsPerCPU is how many programs run concurrently for each CPU of the cluster. With two, a CPU
// has work while a program starts or waits.
const programsPerCPU = 2

// turn waits until a program of the caller may run. Tenants take turns, and so do the callers of a
// tenant. Leave ends the turn.
func (a *api) turn(ctx context.Context, until time.Time) (leave func(), err error) {
	if status, err := a.Cluster.ClusterStatus(ctx); err == nil && status.Capacity.CPUs > 0 { // else the last known number
		a.turns.SetLimit(programsPerCPU * status.Capacity.CPUs)
	}
	ctx, cancel := context.WithDeadlineCause(ctx, until, runtime.Errorf(runtime.CodeNoRunnerAvailable, "too many programs were waiting"))
	defer cancel()
	p := access.FromContext(ctx)
	return a.turns.Pass(runtime.Environment{Tenant: p.Tenant, ID: runtime.EnvironmentID(p.ID)}, 0).Enter(ctx)
}

// pace returns how many seconds a program of an environment needs at least for each second of
// processor time. It is more than 1 if the environment has less than one CPU.
func (a *api) pace(ctx context.Context, env runtime.Environment) float64 {
	status, err := a.Cluster.ClusterStatus(ctx)
	if err != nil || status.CoreMHz <= env.Resources.CPUMHz {
		return 1
	}
	return float64(status.CoreMHz) / float64(env.Resources.CPUMHz)
}
