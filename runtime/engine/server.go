package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/environments"
	"github.com/rockpool/rockpool/runtime/request"
)

// Server serves what the server as a whole does: its health, its activity and its cluster.
type Server struct{ e *Engine }

// Health returns the state of the server and of its components. A caller for one tenant gets the
// pools that it sees, and only the status of the other components.
func (s *Server) Health(ctx context.Context) (activity.Health, error) {
	p, err := s.e.auth.Allow(ctx, "health")
	if err != nil {
		return activity.Health{}, err
	}
	health := s.e.Health(ctx)
	if p.AllTenants {
		return health, nil
	}
	health.Attacks = nil
	health.Components = slices.DeleteFunc(slices.Clone(health.Components), func(c activity.ComponentHealth) bool {
		id, isPool := strings.CutPrefix(c.Name, activity.PoolComponent)
		env, ok := s.e.environmentRegistry.Get(runtime.EnvironmentID(id))
		return isPool && (!ok || !p.SeesEnvironment(env))
	})
	// The status must not depend on pools that the caller doesn't see.
	health.Status = activity.HealthOK
	for i, c := range health.Components {
		if !strings.HasPrefix(c.Name, activity.PoolComponent) {
			health.Components[i].Message = ""
		}
		health.Status = health.Status.Or(c.Status)
	}
	return health, nil
}

// Health is Server.Health for the server itself: it returns all components.
func (e *Engine) Health(ctx context.Context) activity.Health { return e.health.Health(ctx) }

// Draining reports whether the cluster is being drained.
func (e *Engine) Draining() bool { return e.environmentRegistry.Draining() }

// Activity returns counts of what happens now, of the caller's tenant or of all.
func (s *Server) Activity(ctx context.Context) (runtime.Activity, error) {
	p, err := s.e.auth.Allow(ctx, "activity")
	if err != nil {
		return runtime.Activity{}, err
	}
	tenant := p.Only()
	a := runtime.Activity{Draining: s.e.Draining()}
	a.ExecutionsRunning, a.ExecutionsPending = s.e.sessions.Count(tenant)
	a.FailuresPerMinute = s.e.failures.Count(s.e.clock.Now(), func(id runtime.TenantID) bool { return tenant == nil || id == *tenant })
	_, a.ClaimsWaiting = s.e.usage.WaitingClaims(ctx, request.Waiting{Tenant: tenant}, 0, "")
	return a, nil
}

// ClusterStatus returns what the cluster is and how much of it is promised to runners.
func (s *Server) ClusterStatus(ctx context.Context) (runtime.ClusterStatus, error) {
	if _, err := s.e.auth.Allow(ctx, "cluster"); err != nil {
		return runtime.ClusterStatus{}, err
	}
	status, err := s.e.cluster.Status(ctx)
	if err == nil && status.Draining != nil {
		status.Draining.Executions = s.e.sessions.Len()
	}
	return status, err
}

// Capacity returns how many CPUs the cluster has, and the speed of one core.
func (e *Engine) Capacity(ctx context.Context) (cpus, coreMHz int, err error) {
	status, err := e.cluster.Status(ctx)
	return status.Capacity.CPUs, status.CoreMHz, err
}

// A Scheduler is a cluster that reports its scheduling. Both methods return one page, newest first
// by id, and the number of results on all pages. Old ended ones are removed after a while.
type Scheduler interface {
	Evaluations(ctx context.Context, filter runtime.EvaluationFilter) (page []runtime.Evaluation, total int, err error)
	Allocations(ctx context.Context, filter runtime.AllocationFilter) (page []runtime.Allocation, total int, err error)
}

// Evaluations returns a page of the cluster's evaluations, newest first, and the number on all
// pages. A cluster without a Scheduler has none.
func (s *Server) Evaluations(ctx context.Context, filter runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	_, err := s.e.auth.Allow(ctx, "cluster")
	of, ok := s.e.cluster.(Scheduler)
	if err != nil || !ok {
		return nil, 0, err
	}
	return of.Evaluations(ctx, filter)
}

// Allocations returns a page of the cluster's allocations, as Evaluations does.
func (s *Server) Allocations(ctx context.Context, filter runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	_, err := s.e.auth.Allow(ctx, "cluster")
	of, ok := s.e.cluster.(Scheduler)
	if err != nil || !ok {
		return nil, 0, err
	}
	return of.Allocations(ctx, filter)
}

// SetDraining starts or ends draining the cluster. A cancelled ctx doesn't interrupt it. It returns
// INVALID_INPUT if the cluster can't be drained from here.
func (s *Server) SetDraining(ctx context.Context, draining bool) error {
	_, err := audit.Do(ctx, s.e.auth, "drainCluster", audit.Object{Kind: audit.OfCluster, Find: everywhere}, func() (struct{}, error) {
		d, ok := s.e.cluster.(environments.Drainer)
		if !ok {
			return struct{}{}, runtime.Invalid("draining", "can't be set here: drain this cluster's nodes with its own tools")
		}
		return struct{}{}, d.SetDraining(context.WithoutCancel(ctx), draining)
	})
	return err
}
