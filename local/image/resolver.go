package image

import (
	"context"
	"path"
	"slices"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
)

// A Resolver resolves references at registries, for a cluster whose nodes pull images themselves.
// Its methods are safe for concurrent use.
type Resolver struct {
	config     Config
	registries *registries
}

// NewResolver returns a resolver of images for an architecture, named as GOARCH. Of config it uses
// the settings of registries and Skeleton.
func NewResolver(config Config, arch string) (*Resolver, error) {
	r, err := newRegistries(config)
	if err != nil {
		return nil, err
	}
	r.platform.Architecture = arch
	return &Resolver{config, r}, nil
}

// Resolve returns the image that a reference refers to now. INVALID_INPUT names the field image; it
// wraps ErrUnknown if the registry doesn't have the image or denies access. CLUSTER_UNAVAILABLE:
// the registry can't answer now. It takes at most 30 s.
func (r *Resolver) Resolve(ctx context.Context, text string) (runtime.ImagePin, error) {
	ref, err := parse(text, r.config.Plain)
	if err != nil {
		return runtime.ImagePin{}, err
	}
	if ref.registry == nil {
		return runtime.ImagePin{}, tree.Invalid("file: references work on a single machine only", nil)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, resolveWithin, errSlow)
	defer cancel()
	s, err := r.registries.open(ctx, ref.registry, "")
	if err != nil {
		return runtime.ImagePin{}, err
	}
	covered := slices.Clone(r.config.Skeleton.Directories)
	for volume := range s.config.Config.Volumes { // runners can't access volumes
		covered = append(covered, path.Clean("/"+volume))
	}
	pin, err := s.pin(r.config.Skeleton.Home, covered)
	pin.Account = s.config.Config.User
	return pin, err
}
