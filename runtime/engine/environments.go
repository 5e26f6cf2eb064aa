package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
)

// maxEnvironments bounds a tenant's environments: each has a pool, and lists contain all of them.
const maxEnvironments = 10_000

// PutEnvironment creates an environment, or changes the fields that in names. Claimed runners stay
// as they are. Idle ones are replaced if the tenant or anything that runners are made from changed,
// and the cluster has the new image. A deleted environment's id stays with its tenant until its
// last runner is gone. If in names an image, its digest is resolved and pinned. A concurrent change
// gives CONFLICT only with IfRevision; otherwise the input is applied to the newer revision.
func (e *Engine) PutEnvironment(ctx context.Context, in PutEnvironmentInput) (env runtime.Environment, created bool, err error) {
	if err := e.pin(ctx, &in); err != nil { // slow, so before the turn that others wait for
		return runtime.Environment{}, false, err
	}
	done, err := e.catalog.beginChange(ctx)
	if err != nil {
		return runtime.Environment{}, false, err
	}
	defer done()
	// A disconnected client doesn't interrupt the change: pool and cluster must agree.
	ctx = context.WithoutCancel(ctx)
	for {
		stored, exists := e.Environment(in.ID)
		owned := stored
		// A deleted environment that still has claimed runners keeps its owner.
		if p := e.catalog.pool(in.ID); !exists && p != nil && !p.Ended() {
			owned = p.Environment()
		}
		if owned.ID != "" && in.MayChange != nil && !in.MayChange(owned) {
			return runtime.Environment{}, false, runtime.Errorf(runtime.CodeConflict, "the id %s is in use: choose another one", in.ID)
		}
		if in.IfRevision != nil && *in.IfRevision != stored.Revision {
			return runtime.Environment{}, false, runtime.Errorf(runtime.CodeConflict,
				"environment %s is at revision %d, not %d: read it again, then repeat the change", in.ID, stored.Revision, *in.IfRevision)
		}
		env, err = in.applyTo(stored, exists)
		if err != nil {
			return runtime.Environment{}, false, err
		}
		if in.TenantExists != nil && !in.TenantExists(env.Tenant) {
			return runtime.Environment{}, false, runtime.Invalid("tenant", "tenant %s doesn't exist: create it with putTenant", env.Tenant)
		}
		if !exists && e.catalog.of(env.Tenant) >= maxEnvironments {
			return runtime.Environment{}, false, runtime.Errorf(runtime.CodeLimitExceeded, "tenant %s already has %d environments, which is the limit: delete some", env.Tenant, maxEnvironments)
		}
		// The input changes nothing, except that a failed pull of the image starts again.
		if exists && env.Revision == stored.Revision {
			if in.pin.Digest == "" {
				return env, false, nil
			}
			return env, false, e.setEnvironment(ctx, env)
		}
		env = e.withPrevious(env, stored, exists)
		growth := bytesOfEnvironment(env)
		if exists && stored.Tenant == env.Tenant {
			growth -= bytesOfEnvironment(stored)
		}
		kept, err := e.memory.Keep(env.Tenant, max(0, growth), "environment "+string(env.ID))
		if err != nil {
			return runtime.Environment{}, false, err
		}
		undo, err := e.holdings.reserve(env.ID, reservationOf(env))
		if err != nil {
			kept.Free()
			return runtime.Environment{}, false, err
		}
		err = e.cluster.PutEnvironment(ctx, env)
		kept.Free()
		if err == nil {
			err = e.setEnvironment(ctx, env)
			e.keepEnvironment(env)
			return env, !exists, err
		}
		undo()
		if runtime.CodeOf(err) != runtime.CodeConflict || in.IfRevision != nil {
			return runtime.Environment{}, false, err
		}
		// Another server changed it first: apply the input to the stored revision.
		if err := e.adoptEnvironments(ctx); err != nil {
			return runtime.Environment{}, false, err
		}
	}
}

// setEnvironment serves a stored environment.
func (e *Engine) setEnvironment(ctx context.Context, env runtime.Environment) error {
	p := e.catalog.put(env)
	if p != nil && p.SetEnvironment(ctx, env) == nil {
		return nil
	}
	return e.openPool(ctx, env, nil, nil, false) // there is no pool, or it has just ended
}

// readEnvironments applies what the cluster stores now, which others may have changed.
func (e *Engine) readEnvironments(ctx context.Context) error {
	done, err := e.catalog.beginChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	return e.adoptEnvironments(ctx)
}

// adoptEnvironments applies every put and deletion that others made. The caller has begun a change.
func (e *Engine) adoptEnvironments(ctx context.Context) error {
	stored, err := e.cluster.Environments(ctx)
	if err != nil {
		return err
	}
	deleted := map[runtime.EnvironmentID]bool{}
	for _, env := range e.Environments() {
		deleted[env.ID] = true
	}
	for _, env := range stored {
		delete(deleted, env.ID)
		served, exists := e.Environment(env.ID)
		if exists && env.Revision == served.Revision && env.RunnerRevision == served.RunnerRevision && env.Same(served) {
			continue
		}
		e.logger.Info("environment changed by another server or tool", zap.String("environment", string(env.ID)), zap.Int("revision", env.Revision))
		if exists && env.Revision <= served.Revision { // it was deleted and created again, so its revisions restarted
			if err := e.emptyPool(ctx, e.catalog.remove(env.ID), false); err != nil {
				return err
			}
		}
		if err := e.setEnvironment(ctx, env); err != nil {
			return err
		}
		e.adoptEnvironment(env)
	}
	for id := range deleted {
		e.holdings.adoptReserved(id, reservation{})
		e.logger.Info("environment deleted by another server or tool", zap.String("environment", string(id)))
		if err := e.emptyPool(ctx, e.catalog.remove(id), false); err != nil {
			return err
		}
	}
	return nil
}

// adoptEnvironment counts an environment that is stored already.
func (e *Engine) adoptEnvironment(env runtime.Environment) {
	e.keepEnvironment(env)
	e.holdings.adoptReserved(env.ID, reservationOf(env))
}

// keepEnvironment replaces the memory of an environment.
func (e *Engine) keepEnvironment(env runtime.Environment) {
	e.catalog.keep(env.ID, e.memory.Adopt(env.Tenant, bytesOfEnvironment(env)))
}

// emptyPool makes the pool of a deleted environment remove its runners. p may be nil.
func (e *Engine) emptyPool(ctx context.Context, p *pool.Pool, endClaimed bool) error {
	if p == nil {
		return nil
	}
	if err := p.Delete(ctx, endClaimed); err != nil && !p.Ended() {
		return err
	}
	return nil
}

// DeleteEnvironment deletes an environment and its idle runners immediately. Claimed runners stay
// until their claims end, or are removed immediately if endClaimed is set. It returns false if there
// is no such environment that mine accepts.
func (e *Engine) DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID, endClaimed bool, mine func(runtime.Environment) bool) (bool, error) {
	done, err := e.catalog.beginChange(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	ctx = context.WithoutCancel(ctx)
	env, exists := e.Environment(id)
	if !exists { // it may still have a pool
		if p := e.catalog.pool(id); p != nil {
			env = p.Environment()
		}
	}
	if env.ID != "" && !mine(env) {
		return false, nil
	}
	if exists {
		if err := e.cluster.DeleteEnvironment(ctx, id); err != nil {
			return false, err
		}
	}
	e.holdings.adoptReserved(id, reservation{})
	p := e.catalog.remove(id)
	if !exists && !endClaimed {
		return false, nil
	}
	return exists, e.emptyPool(ctx, p, endClaimed) // an already deleted one may still have claimed runners to remove
}

// Environments returns all environments, ordered by id.
func (e *Engine) Environments() []runtime.Environment { return e.catalog.all() }

// Environment returns an environment, and whether it exists.
func (e *Engine) Environment(id runtime.EnvironmentID) (runtime.Environment, bool) {
	return e.catalog.environment(id)
}

// NoEnvironment returns ENVIRONMENT_NOT_FOUND for an id.
func NoEnvironment(id runtime.EnvironmentID) error {
	return runtime.Errorf(runtime.CodeEnvironmentNotFound, "environment %q doesn't exist: list environments, or create it with putEnvironment", id)
}

// Environment returns the environment that the input would create, without a pinned image. It returns
// INVALID_INPUT as PutEnvironment does.
func (in PutEnvironmentInput) Environment() (runtime.Environment, error) {
	return in.applyTo(runtime.Environment{}, false)
}

// applyTo returns stored with the input's changes, at the same revision if nothing changes.
func (in PutEnvironmentInput) applyTo(stored runtime.Environment, exists bool) (runtime.Environment, error) {
	env := stored
	if !exists {
		env = runtime.Environment{
			ID: in.ID, Image: runtime.DefaultImage, PoolSize: runtime.DefaultPoolSize, Resources: runtime.DefaultResources(),
			Isolation: runtime.IsolationNamespaces, DefaultTimeLimit: runtime.DefaultTimeLimit, OutputLimit: runtime.DefaultOutputLimit,
		}
	}
	if in.Image != nil {
		env.Image, env.Pin = *in.Image, in.pin
	}
	set(&env.Tenant, in.Tenant)
	set(&env.Shared, in.Shared)
	set(&env.PoolSize, in.PoolSize)
	set(&env.Resources.CPUMHz, in.CPUMHz)
	set(&env.Resources.MemoryMiB, in.MemoryMiB)
	set(&env.Resources.Processes, in.Processes)
	set(&env.Resources.WorkspaceMiB, in.WorkspaceMiB)
	set(&env.Network.Access, in.NetworkAccess)
	set(&env.Isolation, in.Isolation)
	set(&env.Runtime, in.Runtime)
	set(&env.OutputLimit, in.OutputLimit)
	if in.ExposedPorts != nil {
		env.Network.ExposedPorts = in.ExposedPorts
	}
	if in.Allow != nil {
		env.Network.Allow = in.Allow
	}
	if in.AllowNames != nil {
		env.Network.AllowNames = in.AllowNames
	}
	set(&env.Network.BandwidthMbit, in.BandwidthMbit)
	if in.Variables != nil {
		env.Variables = in.Variables
	}
	if in.Warm != nil {
		if env.Warm = in.Warm; in.Warm.Interpreter == runtime.InterpreterNone {
			env.Warm = nil
		}
	}
	if in.DefaultTimeLimit != nil {
		limit, err := seconds("defaultTimeLimit", *in.DefaultTimeLimit, runtime.MaxTimeLimit)
		if err != nil {
			return env, err
		}
		env.DefaultTimeLimit = limit
	}
	if err := env.Validate(); err != nil {
		return env, err
	}
	if exists && env.Same(stored) {
		return stored, nil
	}
	env.Revision = stored.Revision + 1
	if !env.SameRunners(stored) {
		env.RunnerRevision = env.Revision // the pool replaces idle runners of earlier revisions
	}
	return env, nil
}

// set overwrites a field that the client named.
func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// seconds converts a client's seconds, or returns INVALID_INPUT with the allowed range.
func seconds(field string, value int, most time.Duration) (time.Duration, error) {
	if err := runtime.Between(field, int64(value), 0, int64(most/time.Second), "seconds"); err != nil {
		return 0, err
	}
	return time.Duration(value) * time.Second, nil
}
