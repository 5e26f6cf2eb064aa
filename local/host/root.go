package host

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// rootsDir returns the parent of the root directories of this server and earlier ones.
func (h *Host) rootsDir() string { return filepath.Join(h.config.Dir, "roots") }

// rootDir is this server's root directory. Runners of an earlier server keep using that server's.
func (h *Host) rootDir() string { return filepath.Join(h.rootsDir(), h.Root) }

// BuildRoot makes this server's root directory, unless it exists. If the disk is full, call it
// again later.
func (h *Host) BuildRoot(ctx context.Context) error {
	if h.Direct == nil { // a listening helper makes its own
		return nil
	}
	return h.rootTurn.Do(ctx, h.buildRoot)
}

// buildRoot makes the root directory once: afterwards the agent's binary is released, and further
// calls do nothing. The caller has rootTurn.
func (h *Host) buildRoot() error {
	if h.config.Agent == nil {
		return nil
	}
	err := spec.BuildRoot(h.rootDir(), h.Machine, h.config.Agent)
	if offer := h.Direct.Config.Network; err == nil && offer != nil {
		err = spec.WriteResolver(h.rootDir(), offer.Pool.Gateway())
	}
	if err != nil {
		return fmt.Errorf("make the root directory of sandboxes: %w", err)
	}
	h.config.Agent = nil // installed: free its memory
	return nil
}

// PrepareRoot makes the root directory at the server's start. After an error that retrying can't
// fix, Ready returns that error.
func (h *Host) PrepareRoot(ctx context.Context) {
	if h.unready != nil {
		return
	}
	if err := h.BuildRoot(ctx); err != nil && !IsFull(err) { // if the disk is full, the next runner's start retries
		h.unready = err
	}
}

// SweepRoots deletes the root directories that no sandbox uses.
func (h *Host) SweepRoots(used []string) error {
	if h.Direct == nil {
		return nil
	}
	return spec.SweepRoots(h.rootsDir(), used)
}
