package jobe

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// programsPerCPU is how many programs of a tenant run concurrently for each CPU of the cluster. With
// two, a CPU has work while a program starts or waits. Those of all tenants are at most twice as
// many, so that one tenant leaves turns to others, even if its programs sleep or get no runner.
const programsPerCPU = 2

// pace sets the number of turns. It returns how many seconds a program of an environment needs at
// least for each second of processor time: more than 1 if the environment has less than one CPU.
func (a *api) pace(ctx context.Context, env runtime.Environment) float64 {
	cpus, coreMHz, err := a.Capacity(ctx)
	if err == nil && cpus > 0 { // else the last known number
		a.turns.SetLimit(2 * programsPerCPU * cpus)
	}
	if err != nil || coreMHz <= env.Resources.CPUMHz {
		return 1
	}
	return float64(coreMHz) / float64(env.Resources.CPUMHz)
}

// turn waits until a program of the caller may run. Tenants take turns, and so do the callers of a
// tenant. Leave ends the turn.
func (a *api) turn(ctx context.Context, until time.Time) (leave func(), err error) {
	ctx, cancel := context.WithDeadlineCause(ctx, until, runtime.Errorf(runtime.CodeNoRunnerAvailable, "too many programs were waiting"))
	defer cancel()
	p := access.FromContext(ctx)
	return a.turns.Waiter(p.Tenant, p.ID, 0).Enter(ctx)
}
