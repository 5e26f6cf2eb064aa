package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/local/sandbox/launch"
)

// Bounds of the wait for a listening helper. It may be starting, too. If systemd holds its socket,
// a connection succeeds before the helper answers.
const (
	reachWithin = 5 * time.Second
	greetWithin = 30 * time.Second
)

// greet checks that the listening helper is compatible with this server's settings.
func (h *Host) greet(ctx context.Context) error {
	remote := launch.Remote{Socket: h.config.HelperSocket}
	silent := &launch.UnreachableError{Socket: remote.Socket, Err: fmt.Errorf("it hasn't answered for %s", greetWithin)}
	ctx, cancel := context.WithTimeoutCause(ctx, greetWithin, silent)
	defer cancel()
	reached := time.After(reachWithin)
	for {
		answer, err := remote.Hello(ctx)
		_, away := errors.AsType[*launch.UnreachableError](err)
		switch parent := "/" + h.config.CgroupParent; {
		case err == nil && answer.Parent != parent:
			return fmt.Errorf("the sandbox helper makes runners' cgroups below %s, not below %s: set the same --cgroup-parent for both", answer.Parent, parent)
		case err == nil:
			// Otherwise New would fail later, at the first restored runner.
			if err := h.Trees.Readable(parent); err != nil {
				return fmt.Errorf("this server can't read the cgroups below %s: restart the sandbox helper to make them readable: %w", parent, err)
			}
			h.offered, h.Runtimes = answer.Network, answer.Runtimes
			return nil
		case !away:
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond): // there is no other way to wait until it listens
		case <-reached:
			return err
		case <-ctx.Done():
			return err
		}
	}
}
