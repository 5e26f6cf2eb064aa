package host

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/rockpool/rockpool/local/sandbox/spec"
)

func (h *Host) rootsDir() string { return filepath.Join(h.config.Dir, "roots") }

// rootDir is this server's own: the runners of the last one live on in its.
func (h *Host) rootDir() string { return filepath.Join(h.rootsDir(), h.Root) }

// BuildRoot makes this server's root directory, unless it is there. On a full disk
// the caller tries again later.
func (h *Host) BuildRoot(ctx context.Context) error {
	if h.Direct == nil { // a helper that listens has its own
		return nil
	}
	return h.rootTurn.Do(ctx, h.buildRoot)
}

func (h *Host) buildRoot() error {
	if h.config.Agent == nil {
		return nil
	}
	err := spec.BuildRoot(h.rootDir(), h.Machine, h.config.Agent)
	if offer := h.Direct.Config.Network; err == nil && offer != nil {
		err = spec.WriteResolver(h.rootDir(), offer.Pool.Gateway())
	}
	if err != nil {
		return fmt.Errorf("the sandboxes' root directory: %w", err)
	}
	h.config.Agent = nil // installed, like the helper
	return nil
}

// PrepareRoot makes the root directory at the server's start. What fails for good is
// why nothing can be started.
func (h *Host) PrepareRoot(ctx context.Context) {
	if h.unready != nil {
		return
	}
	if err := h.BuildRoot(ctx); err != nil && !IsFull(err) { // else the next start tries again
		h.unready = err
	}
}

// SweepRoots deletes the root directories that no sandbox was made around.
func (h *Host) SweepRoots(used []string) error {
	if h.Direct == nil {
		return nil
	}
	return spec.SweepRoots(h.rootsDir(), used)
}
