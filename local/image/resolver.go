package image

import (
	"context"
	"path"
	"slices"

	"github.com/rockpool/rockpool/local/image/fault"
	"github.com/rockpool/rockpool/runtime"
)

// A Resolver asks registries what references mean, for a cluster whose nodes have images of their own.
// Its methods may be called at once.
type Resolver struct {
	config     Config
	registries *registries
}

// NewResolver returns a resolver of images for an architecture, as GOARCH names it. Of config it needs
// what is about registries, and Skeleton.
func NewResolver(config Config, arch string) (*Resolver, error) {
	r, err := newRegistries(config)
	if err != nil {
		return nil, err
	}
	r.platform.Architecture = arch
	return &Resolver{config, r}, nil
}

// Resolve returns what a reference means now. INVALID_INPUT names the field image, and is ErrUnknown where
// its registry doesn't have the image, or doesn't show it. CLUSTER_UNAVAILABLE means that the
// registry can't tell now.
func (r *Resolver) Resolve(ctx context.Context, text string) (runtime.ImagePin, error) {
	ref, err := parse(text, r.config.Plain)
	if err != nil {
		return runtime.ImagePin{}, err
	}
	if ref.registry == nil {
		return runtime.ImagePin{}, fault.Broken("files are for a single machine", nil)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, resolveWithin, errSlow)
	defer cancel()
	s, err := r.registries.open(ctx, ref.registry, "")
	if err != nil {
		return runtime.ImagePin{}, err
	}
	covered := slices.Clone(r.config.Skeleton.Directories)
	for volume := range s.config.Config.Volumes { // which runners find closed
		covered = append(covered, path.Clean("/"+volume))
	}
	pin, err := s.pin(r.config.Skeleton.Home, covered)
	pin.Account = s.config.Config.User
	return pin, err
}
