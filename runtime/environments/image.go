package environments

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
)

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
