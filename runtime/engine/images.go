package engine

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// Images is a cluster that gets images itself. Once an environment with a pinned
// image is put, it gets that image until it has it, or the environment is put
// anew. Others have image drivers of their own.
type Images interface {
	// PinImage returns what a reference means now; the zero ImagePin for what
	// isn't an image. INVALID_INPUT names the field image.
	PinImage(ctx context.Context, reference string) (runtime.ImagePin, error)
	// ImageStatus says how far it is with an image. It doesn't block. Watch hints at
	// the environments that have it when that changes.
	ImageStatus(pin runtime.ImagePin) runtime.ImageStatus
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
