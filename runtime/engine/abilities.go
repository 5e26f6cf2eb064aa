package engine

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// Beside its contract, a cluster can have the abilities that the interfaces here name.

// Images is a cluster that gets images itself. Once an environment with a pinned
// image is put, it gets that image until it has it, or the environment is put
// anew. Others have image drivers of their own.
type Images interface {
	// PinImage returns what a reference means now; the zero ImagePin for what
	// isn't an image, or one without a digest that says why: then its nodes know the image
	// by its name only. INVALID_INPUT names the field image.
	PinImage(ctx context.Context, reference string) (runtime.ImagePin, error)
	// ImageStatus says how far it is with an image. It doesn't block. Watch hints at
	// the environments that have it when that changes.
	ImageStatus(pin runtime.ImagePin) runtime.ImageStatus
}

// EnvironmentWatcher is a cluster whose environments others than this server can change,
// too.
type EnvironmentWatcher interface {
	// WatchEnvironments calls hint when environments may have changed, until ctx ends, and
	// returns ctx's cause. A hint is as those of Watch.
	WatchEnvironments(ctx context.Context, hint func()) error
}

// followEnvironments serves what others change, until ctx ends. It begins once what was
// stored is restored.
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
				e.logger.Warn("environments could not be read, until the next hint", zap.Error(err))
			}
		case <-ctx.Done():
			return
		}
	}
}

// pin finds out what the image that the client named is now. Nothing is asked
// about an input that is wrong anyway.
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
	if err == nil && in.pin.Unpinned != "" && stored.Pin.Digest != "" && stored.Image == *in.Image {
		return runtime.Invalid("image", "was pinned, and can't be looked up any more: leave it out to keep its bytes (%s)", in.pin.Unpinned)
	}
	return err
}

// remember gives a new revision, whose image the cluster hasn't, the one that is
// served until it has.
func (e *Engine) remember(env, stored runtime.Environment, exists bool) runtime.Environment {
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

// imageStatus is of pool.Options.
func (e *Engine) imageStatus(pin runtime.ImagePin) runtime.ImageStatus {
	if images, ok := e.cluster.(Images); ok {
		return images.ImageStatus(pin)
	}
	return runtime.ImageStatus{}
}

// A Drainer is a cluster that is drained through this server: it ends runners
// that nobody holds, starts none, and says so in its status, until it is told
// otherwise. Both methods are safe to repeat; Draining doesn't block.
type Drainer interface {
	SetDraining(ctx context.Context, draining bool) error
	Draining() bool
}

// SetDraining drains the cluster, or ends that. It goes on when the caller
// leaves. INVALID_INPUT: the cluster has its own way.
func (e *Engine) SetDraining(ctx context.Context, draining bool) error {
	d, ok := e.cluster.(Drainer)
	if !ok {
		return runtime.Invalid("draining", "can't be set here: this cluster's nodes are drained by its own means")
	}
	return d.SetDraining(context.WithoutCancel(ctx), draining)
}

// Draining reports whether the cluster is being drained.
func (e *Engine) Draining() bool {
	d, ok := e.cluster.(Drainer)
	return ok && d.Draining()
}

// A Scheduler is a cluster that tells how its runners get their places. Both
// methods return a page, the youngest first by id, and how many there are on all
// pages; what ended long enough ago is forgotten.
type Scheduler interface {
	Evaluations(ctx context.Context, filter runtime.EvaluationFilter) (page []runtime.Evaluation, total int, err error)
	Allocations(ctx context.Context, filter runtime.AllocationFilter) (page []runtime.Allocation, total int, err error)
}

// Evaluations returns a page of the cluster's evaluations, the youngest first,
// and how many there are in all: none where the cluster tells of none.
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

// TaskEvents returns what happened to a runner, the oldest first; none where
// nothing is known (any more).
func (e *Engine) TaskEvents(ctx context.Context, id runtime.RunnerID) ([]runtime.TaskEvent, error) {
	return e.cluster.TaskEvents(ctx, id)
}
