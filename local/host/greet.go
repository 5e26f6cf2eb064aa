package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/local/sandbox/launch"
)

// How long a helper that listens is waited for: it may be starting too. Where
// systemd listens for it, the connection is there before it is.
const (
	reachWithin = 5 * time.Second
	greetWithin = 30 * time.Second
)

// greet finds out whether the helper that listens is the one that is meant.
func (h *Host) greet(ctx context.Context) error {
	remote := launch.Remote{Socket: h.config.HelperSocket}
	silent := &launch.UnreachableError{Socket: remote.Socket, Err: fmt.Errorf("it has said nothing for %s", greetWithin)}
	ctx, cancel := context.WithTimeoutCause(ctx, greetWithin, silent)
	defer cancel()
	reached := time.After(reachWithin)
	for {
		answer, err := remote.Hello(ctx)
		var away *launch.UnreachableError
		switch parent := "/" + h.config.CgroupParent; {
		case err == nil && answer.Parent != parent:
			return fmt.Errorf("the sandbox helper makes runners' groups below %s, not below %s: let --cgroup-parent be the same for both", answer.Parent, parent)
		case err == nil:
			// Else New would fail later, with the first runner of the last server.
			if err := h.Trees.Readable(parent); err != nil {
				return fmt.Errorf("this server can't read the cgroups below %s: restart the sandbox helper, which makes them readable: %w", parent, err)
			}
			h.offered, h.Runtimes = answer.Network, answer.Runtimes
			return nil
		case !errors.As(err, &away):
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond): // whether it listens can't be waited for otherwise
		case <-reached:
			return err
		case <-ctx.Done():
			return err
		}
	}
}
