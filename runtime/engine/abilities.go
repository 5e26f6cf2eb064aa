package engine

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// The interfaces here are optional abilities of a cluster, in addition to runtime.Cluster.

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

// followEnvironments applies the changes that others make, until ctx ends. It begins after the
// restore.
func (e *Engine) followEnvironments(ctx context.Context) {
	cluster, ok := e.cluster.(EnvironmentWatcher)
	if !ok {
		return
	}
	select {
	case <-e.restored.done:
	case <-ctx.Done():
		return
	}
	due := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		_ = cluster.WatchEnvironments(ctx, func() { // until ctx ends
			select {
			case due <- struct{}{}:
			default:
			}
		})
	})
	for {
		select {
		case <-due:
			if err := e.readEnvironments(ctx); err != nil && ctx.Err() == nil {
				e.logger.Warn("environments could not be read; the next change triggers another try", zap.Error(err))
			}
		case <-ctx.Done():
			return
		}
	}
}

// pin resolves the image that the client named. An invalid input is rejected before any registry
// is asked.
func (e *Engine) pin(ctx context.Context, in *PutEnvironmentInput) error {
	images, ok := e.cluster.(Images)
	if !ok || in.Image == nil {
		return nil
	}
	stored, exists := e.Environment(in.ID)
	if _, err := in.applyTo(stored, exists); err != nil {
		return err
	}
	var err error
	in.pin, err = images.PinImage(ctx, *in.Image)
	// A change that names the same image again must not remove its pin.
	if err == nil && in.pin.Unpinned != "" && stored.Pin.Digest != "" && stored.Image == *in.Image {
		return runtime.Invalid("image", "is pinned, but its digest can no longer be resolved (%s); leave the field out to keep the pinned content", in.pin.Unpinned)
	}
	return err
}

// withPrevious returns env with its Previous set to the revision that is served until the cluster
// has env's image.
func (e *Engine) withPrevious(env, stored runtime.Environment, exists bool) runtime.Environment {
	env.Previous = nil
	if !exists || e.has(env.Pin) {
		return env
	}
	served := stored
	if !e.has(stored.Pin) {
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
func (e *Engine) has(pin runtime.ImagePin) bool {
	images, ok := e.cluster.(Images)
	return !ok || pin.Digest == "" || images.ImageStatus(pin).State == runtime.ImageReady
}

// imageStatus implements pool.Options.Image.
func (e *Engine) imageStatus(pin runtime.ImagePin) runtime.ImageStatus {
	if images, ok := e.cluster.(Images); ok {
		return images.ImageStatus(pin)
	}
	return runtime.ImageStatus{}
}

// A Drainer is a cluster that can be drained through this server. While it drains, it removes
// unclaimed runners, starts none, and reports Draining in its status. SetDraining is idempotent;
// Draining doesn't block.
type Drainer interface {
	SetDraining(ctx context.Context, draining bool) error
	Draining() bool
}

// SetDraining starts or ends draining the cluster. A cancelled ctx doesn't interrupt it. It returns
// INVALID_INPUT if the cluster can't be drained from here.
func (e *Engine) SetDraining(ctx context.Context, draining bool) error {
	d, ok := e.cluster.(Drainer)
	if !ok {
		return runtime.Invalid("draining", "can't be set here: drain this cluster's nodes with its own tools")
	}
	return d.SetDraining(context.WithoutCancel(ctx), draining)
}

// Draining reports whether the cluster is being drained.
func (e *Engine) Draining() bool {
	d, ok := e.cluster.(Drainer)
	return ok && d.Draining()
}

// A Scheduler is a cluster that reports its scheduling. Both methods return one page, newest first
// by id, and the number of results on all pages. Old ended ones are removed after a while.
type Scheduler interface {
	Evaluations(ctx context.Context, filter runtime.EvaluationFilter) (page []runtime.Evaluation, total int, err error)
	Allocations(ctx context.Context, filter runtime.AllocationFilter) (page []runtime.Allocation, total int, err error)
}

// Evaluations returns a page of the cluster's evaluations, newest first, and the number on all
// pages. A cluster without a Scheduler has none.
func (e *Engine) Evaluations(ctx context.Context, filter runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	s, ok := e.cluster.(Scheduler)
	if !ok {
		return nil, 0, nil
	}
	return s.Evaluations(ctx, filter)
}

// Allocations returns a page of the cluster's allocations, as Evaluations does.
func (e *Engine) Allocations(ctx context.Context, filter runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	s, ok := e.cluster.(Scheduler)
	if !ok {
		return nil, 0, nil
	}
	return s.Allocations(ctx, filter)
}

// TaskEvents returns the events of a runner, oldest first, and none for an unknown runner.
func (e *Engine) TaskEvents(ctx context.Context, id runtime.RunnerID) ([]runtime.TaskEvent, error) {
	return e.cluster.TaskEvents(ctx, id)
}
