package nomad

import (
	"context"

	"github.com/rockpool/rockpool/runtime"
)

// PinImage implements environments.Images. It asks the image's registry for the digest, so that all nodes
// run the same bytes.
func (c *Cluster) PinImage(ctx context.Context, reference string) (runtime.ImagePin, error) {
	if c.config.Resolve == nil || reference == runtime.DefaultImage {
		return runtime.ImagePin{}, nil
	}
	pin, err := c.config.Resolve(ctx, reference)
	if runtime.CodeOf(err) == runtime.CodeClusterUnavailable {
		err = runtime.Wrap(runtime.CodeClusterUnavailable, err, "the image %s can't be looked up now (%v): where only nodes have images, set --nomad-node-images", reference, err)
	}
	return pin, err
}

// ImageStatus implements environments.Images. A node pulls a pinned image by its digest when it first
// needs it.
func (c *Cluster) ImageStatus(pin runtime.ImagePin) runtime.ImageStatus {
	if pin.Digest == "" {
		return runtime.ImageStatus{}
	}
	return runtime.ImageStatus{Digest: pin.Digest, State: runtime.ImageReady}
}
