package environments

import (
	"context"
	"slices"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/request"
)

// A Service serves environments and their pools to callers. An environment that a caller doesn't see
// doesn't exist for it. Methods with an [runtime.Environment] check nothing: it must come from a call
// that did. Methods are safe for concurrent use.
type Service struct {
	auth         *audit.Authorizer
	registry     *Registry
	tenantExists func(runtime.TenantID) bool
}

// NewService returns the Service of a registry.
func NewService(auth *audit.Authorizer, registry *Registry, tenantExists func(runtime.TenantID) bool) *Service {
	return &Service{auth, registry, tenantExists}
}

// List returns the environments that the caller sees, ordered by id.
func (s *Service) List(ctx context.Context) ([]runtime.Environment, error) {
	p, err := s.auth.Allow(ctx, "environments")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(s.registry.All(), func(env runtime.Environment) bool { return !p.SeesEnvironment(env) }), nil
}

// Get returns an environment, and whether it exists for the caller.
func (s *Service) Get(ctx context.Context, id runtime.EnvironmentID) (runtime.Environment, bool, error) {
	return s.First(ctx, []runtime.EnvironmentID{id})
}

// First returns the first of ids that exists for the caller, and whether any does.
func (s *Service) First(ctx context.Context, ids []runtime.EnvironmentID) (runtime.Environment, bool, error) {
	p, err := s.auth.Allow(ctx, "environment")
	if err != nil {
		return runtime.Environment{}, false, err
	}
	for _, id := range ids {
		if env, ok := s.registry.Get(id); ok && p.SeesEnvironment(env) {
			return env, true, nil
		}
	}
	return runtime.Environment{}, false, nil
}

// Put creates an environment of the caller's tenant. If that tenant has it already, Put changes the
// fields that in sets. Ids are unique across tenants: it returns CONFLICT if another tenant has this one.
//
// Claimed runners stay as they are. Idle ones are replaced if the tenant or anything that runners are
// made from changed, and the cluster has the new image. A deleted environment's id stays with its
// tenant until its last runner is gone. If in names an image, its digest is resolved and pinned. A
// concurrent change gives CONFLICT only with IfRevision; otherwise the request is applied to the newer
// revision.
func (s *Service) Put(ctx context.Context, in request.Environment) (env runtime.Environment, created bool, err error) {
	made := audit.NewMade(audit.OfEnvironment, string(in.ID))
	err = s.auth.Make(ctx, "putEnvironment", made, func(p access.Principal) (err error) {
		if in.Shared != nil && *in.Shared && !p.AllTenants {
			if stored, ok := s.registry.Get(in.ID); !ok || !stored.Shared {
				return runtime.Errorf(runtime.CodeForbidden, "only a token for all tenants may share an environment, because other tenants' programs then run in it")
			}
		}
		switch {
		case in.Tenant == nil && !p.AllTenants:
			in.Tenant = &p.Tenant
		case in.Tenant == nil:
		case !p.SeesTenant(*in.Tenant):
			return runtime.Invalid("tenant", "must be the token's tenant, or left out")
		}
		if env, created, err = s.registry.put(ctx, p, in, s.tenantExists); err == nil {
			made.Tenant = env.Tenant
		}
		return err
	})
	return env, created, err
}

// Delete deletes an environment of the caller's tenant and its idle runners immediately. Claimed
// runners stay until their claims end, or are removed immediately if endClaimed is set. It returns
// false if there is no such environment.
func (s *Service) Delete(ctx context.Context, id runtime.EnvironmentID, endClaimed bool) (deleted bool, err error) {
	missing := false
	deleted, err = audit.Do(ctx, s.auth, "deleteEnvironment", s.object(id), func() (deleted bool, err error) {
		if deleted, err = s.registry.delete(ctx, access.FromContext(ctx), id, endClaimed); err == nil && !deleted {
			missing, err = true, NotFound(id)
		}
		return deleted, err
	})
	if missing {
		return false, nil
	}
	return deleted, err
}

// object returns an environment for the audit log. Registry.delete checks whether the caller may change
// it, because a deleted one may still have runners.
func (s *Service) object(id runtime.EnvironmentID) audit.Object {
	return audit.Object{Kind: audit.OfEnvironment, ID: string(id), Find: func(access.Principal) (runtime.TenantID, error) {
		if env, ok := s.registry.Get(id); ok {
			return env.Tenant, nil
		}
		return audit.WholeServer, nil
	}}
}

// PoolStatus returns the latest snapshot of an environment's pool, and whether there is a pool.
func (s *Service) PoolStatus(env runtime.Environment) (runtime.PoolStatus, bool) {
	p := s.registry.Pool(env.ID)
	if p == nil {
		return runtime.PoolStatus{}, false
	}
	return p.Status(), true
}

// StartDurations returns how long an environment's runners took to become ready, counting those that
// this server started.
func (s *Service) StartDurations(env runtime.Environment) runtime.Distribution {
	return ofPool(s.registry, env.ID, (*pool.Pool).StartDurations)
}

// PoolHistory returns samples of an environment's pool in the last hour, oldest first, as far as this
// server ran.
func (s *Service) PoolHistory(env runtime.Environment) []runtime.PoolSample {
	return ofPool(s.registry, env.ID, (*pool.Pool).History)
}

// ClaimStats returns the counters of an environment's claims since this server started.
func (s *Service) ClaimStats(env runtime.Environment) runtime.ClaimStats {
	return ofPool(s.registry, env.ID, (*pool.Pool).ClaimStats)
}

// ofPool returns what read returns for an environment's pool, or the zero value without a pool.
func ofPool[T any](r *Registry, id runtime.EnvironmentID, read func(*pool.Pool) T) (value T) {
	if p := r.Pool(id); p != nil {
		value = read(p)
	}
	return value
}

// Alerts returns the standing alerts of environments that the caller sees, ordered by environment.
func (s *Service) Alerts(ctx context.Context) ([]runtime.PoolAlert, error) {
	p, err := s.auth.Allow(ctx, "poolAlerts")
	if err != nil {
		return nil, err
	}
	alerts := []runtime.PoolAlert{}
	for _, env := range s.registry.All() {
		if alert := s.registry.alert(env.ID); alert.Standing() && p.SeesEnvironment(env) {
			alerts = append(alerts, alert)
		}
	}
	return alerts, nil
}

// AlertHistory returns the latest alerts that were raised or resolved since this server started,
// newest first, of environments that the caller saw then.
func (s *Service) AlertHistory(ctx context.Context) ([]runtime.PoolAlert, error) {
	p, err := s.auth.Allow(ctx, "poolAlertHistory")
	if err != nil {
		return nil, err
	}
	return s.registry.Alerts.Latest(p.SeesEnvironment), nil
}

// WatchPools sends a snapshot of each pool that the caller sees, then each change. A slow receiver gets
// only the latest. The last snapshot of a pool has Deleted set. For "" it watches all pools, including
// later ones. For an id it watches one pool, and closes the channel after its last snapshot. It also
// closes it when ctx ends.
func (s *Service) WatchPools(ctx context.Context, id runtime.EnvironmentID) (<-chan runtime.PoolStatus, error) {
	return watchPools(ctx, s, "poolStatus", id, activity.WatchPools, (*pool.Pool).Watch, func(runtime.PoolStatus) bool { return true })
}

// WatchAlerts sends the standing alerts, then each change. A slow receiver gets only the latest. id and
// the channel's end are as in WatchPools.
func (s *Service) WatchAlerts(ctx context.Context, id runtime.EnvironmentID) (<-chan runtime.PoolAlert, error) {
	return watchPools(ctx, s, "poolAlerts", id, activity.WatchPoolAlerts, (*pool.Pool).WatchAlert, runtime.PoolAlert.Standing)
}

// watchPools sends what look returns for the pools that the caller sees. A pool's first value is left out
// unless stands accepts it.
func watchPools[T any](ctx context.Context, s *Service, op access.Operation, id runtime.EnvironmentID, kind activity.WatchKind,
	look func(*pool.Pool) (T, <-chan struct{}), stands func(T) bool) (<-chan T, error) {
	p, err := s.auth.Allow(ctx, op)
	if err != nil {
		return nil, err
	}
	only, err := s.registry.Watched(p, id)
	if err != nil {
		return nil, err
	}
	r, out := s.registry, make(chan T)
	return out, r.Jobs.Go(ctx, func(ctx context.Context) {
		defer close(out)
		defer r.Counts.Subscription(kind)()
		follow := func(of *pool.Pool) {
			sees := func() bool { return p.SeesEnvironment(r.environmentOf(of)) }
			pool.Follow(ctx, of, out, look, func(value T) bool { return stands(value) && sees() }, sees)
		}
		if only != nil {
			follow(only)
			return
		}
		r.followPools(ctx, follow)
	})
}

// Watched returns the pool of an environment that a caller sees, or no pool for "".
func (r *Registry) Watched(p access.Principal, id runtime.EnvironmentID) (*pool.Pool, error) {
	if id == "" {
		return nil, nil
	}
	if env, ok := r.Get(id); ok && !p.SeesEnvironment(env) {
		return nil, NotFound(id)
	}
	return r.Served(id)
}
