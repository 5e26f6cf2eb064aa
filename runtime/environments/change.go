package environments

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// maxEnvironments bounds a tenant's environments: each has a pool, and lists contain all of them.
const maxEnvironments = 10_000

// put is Service.Put for a caller that may use it. tenantExists reports whether a tenant exists.
func (r *Registry) put(ctx context.Context, p access.Principal, in request.Environment, tenantExists func(runtime.TenantID) bool) (env runtime.Environment, created bool, err error) {
	if err := r.checkOwner(p, in.ID); err != nil { // what is resolved must not depend on another tenant's environment
		return runtime.Environment{}, false, err
	}
	pin, err := r.pin(ctx, in) // slow, so before the turn that others wait for
	if err != nil {
		return runtime.Environment{}, false, err
	}
	done, err := r.beginChange(ctx)
	if err != nil {
		return runtime.Environment{}, false, err
	}
	defer done()
	// A disconnected client doesn't interrupt the change: pool and cluster must agree.
	ctx = context.WithoutCancel(ctx)
	for {
		stored, exists := r.Get(in.ID)
		if err := r.checkOwner(p, in.ID); err != nil {
			return runtime.Environment{}, false, err
		}
		if in.IfRevision != nil && *in.IfRevision != stored.Revision {
			return runtime.Environment{}, false, runtime.Errorf(runtime.CodeConflict,
				"environment %s is at revision %d, not %d: read it again, then repeat the change", in.ID, stored.Revision, *in.IfRevision)
		}
		env, err = in.Apply(stored, exists, pin)
		if err != nil {
			return runtime.Environment{}, false, err
		}
		if !tenantExists(env.Tenant) {
			return runtime.Environment{}, false, runtime.Invalid("tenant", "tenant %s doesn't exist: create it with putTenant", env.Tenant)
		}
		if !exists && r.count(env.Tenant) >= maxEnvironments {
			return runtime.Environment{}, false, runtime.Errorf(runtime.CodeLimitExceeded, "tenant %s already has %d environments, which is the limit: delete some", env.Tenant, maxEnvironments)
		}
		// The input changes nothing, except that a failed pull of the image starts again.
		if exists && env.Revision == stored.Revision {
			if pin.Digest == "" {
				return env, false, nil
			}
			return env, false, r.setEnvironment(ctx, env)
		}
		env = r.withPrevious(env, stored, exists)
		growth := bytesOf(env)
		if exists && stored.Tenant == env.Tenant {
			growth -= bytesOf(stored)
		}
		kept, err := r.Memory.Keep(env.Tenant, max(0, growth), "environment "+string(env.ID))
		if err != nil {
			return runtime.Environment{}, false, err
		}
		undo, err := r.Usage.Reserve(env)
		if err != nil {
			kept.Free()
			return runtime.Environment{}, false, err
		}
		err = r.Cluster.PutEnvironment(ctx, env)
		kept.Free()
		if err == nil {
			err = r.setEnvironment(ctx, env)
			r.keep(env)
			return env, !exists, err
		}
		undo()
		if runtime.CodeOf(err) != runtime.CodeConflict || in.IfRevision != nil {
			return runtime.Environment{}, false, err
		}
		// Another server changed it first: apply the input to the stored revision.
		if err := r.adoptEnvironments(ctx); err != nil {
			return runtime.Environment{}, false, err
		}
	}
}

// checkOwner returns CONFLICT if a caller doesn't see the tenant that has an environment's id.
func (r *Registry) checkOwner(p access.Principal, id runtime.EnvironmentID) error {
	owned, exists := r.Get(id)
	// A deleted environment that still has claimed runners keeps its loop.
	if last := r.Pool(id); !exists && last != nil && !last.Ended() {
		owned = last.Environment()
	}
	if owned.ID != "" && !p.SeesTenant(owned.Tenant) {
		return runtime.Errorf(runtime.CodeConflict, "the id %s is in use: choose another one", id)
	}
	return nil
}

func (r *Registry) setEnvironment(ctx context.Context, env runtime.Environment) error {
	p := r.serve(env)
	if p != nil && p.SetEnvironment(ctx, env) == nil {
		return nil
	}
	return r.openPool(ctx, env, nil, nil, false) // there is no pool, or it has just ended
}

// Follow applies the changes that others make, until ctx ends. It begins once ready is closed.
func (r *Registry) Follow(ctx context.Context, ready <-chan struct{}) {
	cluster, ok := r.Cluster.(EnvironmentWatcher)
	if !ok {
		return
	}
	select {
	case <-ready:
	case <-ctx.Done():
		return
	}
	due := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		_ = cluster.WatchEnvironments(ctx, func() { syncs.Offer(due, struct{}{}) }) // until ctx ends
	})
	for {
		select {
		case <-due:
			if err := r.read(ctx); err != nil && ctx.Err() == nil {
				r.Logger.Warn("environments could not be read; the next change triggers another try", zap.Error(err))
			}
		case <-ctx.Done():
			return
		}
	}
}

// read applies what the cluster stores now, which others may have changed.
func (r *Registry) read(ctx context.Context) error {
	done, err := r.beginChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	return r.adoptEnvironments(ctx)
}

// adoptEnvironments applies every put and deletion that others made. The caller has begun a change.
func (r *Registry) adoptEnvironments(ctx context.Context) error {
	stored, err := r.Cluster.Environments(ctx)
	if err != nil {
		return err
	}
	deleted := map[runtime.EnvironmentID]bool{}
	for _, env := range r.All() {
		deleted[env.ID] = true
	}
	for _, env := range stored {
		delete(deleted, env.ID)
		served, exists := r.Get(env.ID)
		if exists && env.Revision == served.Revision && env.RunnerRevision == served.RunnerRevision && env.Same(served) {
			continue
		}
		r.Logger.Info("environment changed by another server or tool", zap.String("environment", string(env.ID)), zap.Int("revision", env.Revision))
		if exists && env.Revision <= served.Revision { // it was deleted and created again, so its revisions restarted
			if err := r.emptyPool(ctx, r.remove(env.ID), false); err != nil {
				return err
			}
		}
		if err := r.setEnvironment(ctx, env); err != nil {
			return err
		}
		r.adoptEnvironment(env)
	}
	for id := range deleted {
		r.Usage.ReleaseReserved(id)
		r.Logger.Info("environment deleted by another server or tool", zap.String("environment", string(id)))
		if err := r.emptyPool(ctx, r.remove(id), false); err != nil {
			return err
		}
	}
	return nil
}

// adoptEnvironment counts an environment that is stored already.
func (r *Registry) adoptEnvironment(env runtime.Environment) {
	r.keep(env)
	r.Usage.AdoptReserved(env)
}

// emptyPool makes the pool of a deleted environment remove its runners. p may be nil.
func (r *Registry) emptyPool(ctx context.Context, p *pool.Pool, endClaimed bool) error {
	if p == nil {
		return nil
	}
	if err := p.Delete(ctx, endClaimed); err != nil && !p.Ended() {
		return err
	}
	return nil
}

// delete is Service.Delete for a caller that may use it.
func (r *Registry) delete(ctx context.Context, p access.Principal, id runtime.EnvironmentID, endClaimed bool) (bool, error) {
	done, err := r.beginChange(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	ctx = context.WithoutCancel(ctx)
	env, exists := r.Get(id)
	if !exists { // it may still have a pool
		if last := r.Pool(id); last != nil {
			env = last.Environment()
		}
	}
	if env.ID != "" && !p.SeesTenant(env.Tenant) {
		return false, nil
	}
	if exists {
		if err := r.Cluster.DeleteEnvironment(ctx, id); err != nil {
			return false, err
		}
	}
	r.Usage.ReleaseReserved(id)
	removed := r.remove(id)
	if !exists && !endClaimed {
		return false, nil
	}
	return exists, r.emptyPool(ctx, removed, endClaimed) // an already deleted one may still have claimed runners to remove
}

// Images is a cluster that pulls images itself. Once an environment with a pinned image is put, it
// pulls that image until it has it. A put of the environment starts a pull that failed again.
// Clusters without this ability leave images to their own drivers.
type Images interface {
	// PinImage returns the content that a reference names now. It returns the zero ImagePin for a
	// reference that isn't an image. Where nodes know the image by its name only, it returns a pin
	// without a digest but with a reason. INVALID_INPUT names the field image.
	PinImage(ctx context.Context, reference string) (runtime.ImagePin, error)
	// ImageStatus returns the progress of pulling an image. It doesn't block. Watch hints
	// at the environments with that image when the status changes.
	ImageStatus(pin runtime.ImagePin) runtime.ImageStatus
}

// EnvironmentWatcher is a cluster whose environments may also be changed by others than this server.
type EnvironmentWatcher interface {
	// WatchEnvironments calls hint when environments may have changed, until ctx ends, and
	// returns ctx's cause. Hints are like those of Cluster.Watch.
	WatchEnvironments(ctx context.Context, hint func()) error
}

// environmentBytes is the memory of an environment in addition to its texts: its pool's goroutine and
// history. A test in test/e2e/api shows that a server survives as many as it admits.
const environmentBytes = 32 << 10

// bytesOf returns what an environment keeps. Its record is read once more by a starting
// server.
func bytesOf(env runtime.Environment) int64 {
	n := environmentBytes + 2*(quota.BytesOfVariables(env.Variables)+quota.BytesOf(env.Network.AllowNames...)+quota.BytesOf(env.Image))
	if env.Previous != nil {
		n += bytesOf(*env.Previous) - environmentBytes
	}
	return n
}

// pin resolves the image that the client named. An invalid input is rejected before any registry
// is asked.
func (r *Registry) pin(ctx context.Context, in request.Environment) (pin runtime.ImagePin, err error) {
	images, ok := r.Cluster.(Images)
	if !ok || in.Image == nil {
		return pin, nil
	}
	stored, exists := r.Get(in.ID)
	if _, err := in.Apply(stored, exists, pin); err != nil {
		return pin, err
	}
	pin, err = images.PinImage(ctx, *in.Image)
	// A change that names the same image again must not remove its pin.
	if err == nil && pin.Unpinned != "" && stored.Pin.Digest != "" && stored.Image == *in.Image {
		return pin, runtime.Invalid("image", "is pinned, but its digest can no longer be resolved (%s); leave the field out to keep the pinned content", pin.Unpinned)
	}
	return pin, err
}

// withPrevious returns env with its Previous set to the revision that is served until the cluster
// has env's image.
func (r *Registry) withPrevious(env, stored runtime.Environment, exists bool) runtime.Environment {
	env.Previous = nil
	if !exists || r.has(env.Pin) {
		return env
	}
	served := stored
	if !r.has(stored.Pin) {
		if stored.Previous == nil {
			return env
		}
		served = *stored.Previous
	}
	served.Previous = nil
	env.Previous = &served
	return env
}

// has reports whether the cluster can make runners from an image now.
func (r *Registry) has(pin runtime.ImagePin) bool {
	images, ok := r.Cluster.(Images)
	return !ok || pin.Digest == "" || images.ImageStatus(pin).State == runtime.ImageReady
}

// ImageStatus implements pool.Options.Image.
func (r *Registry) ImageStatus(pin runtime.ImagePin) runtime.ImageStatus {
	if images, ok := r.Cluster.(Images); ok {
		return images.ImageStatus(pin)
	}
	return runtime.ImageStatus{}
}
