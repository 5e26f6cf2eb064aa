package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
)

// A launcher makes and removes sandboxes; see package launch.
type launcher interface {
	Create(ctx context.Context, group string, q helper.Request, listener *os.File) (helper.Answer, error)
	Remove(ctx context.Context, id, group string) error
	Ask(ctx context.Context, group string, q helper.Request) error
	Probe(ctx context.Context, runtime string) (version string, noTime bool, err error)
}

// How long a helper that listens is waited for: it may be starting too. Where
// systemd listens for it, the connection is there before it is.
const (
	reachWithin = 5 * time.Second
	greetWithin = 30 * time.Second
)

// greet finds out whether the helper that listens is the one that is meant.
func (c *Cluster) greet(ctx context.Context) error {
	remote := launch.Remote{Socket: c.config.HelperSocket}
	silent := &launch.UnreachableError{Socket: remote.Socket, Err: fmt.Errorf("it has said nothing for %s", greetWithin)}
	ctx, cancel := context.WithTimeoutCause(ctx, greetWithin, silent)
	defer cancel()
	reached := time.After(reachWithin)
	for {
		answer, err := remote.Hello(ctx)
		var away *launch.UnreachableError
		switch parent := "/" + c.config.CgroupParent; {
		case err == nil && answer.Parent != parent:
			return fmt.Errorf("the sandbox helper makes runners' groups below %s, not below %s: let --cgroup-parent be the same for both", answer.Parent, parent)
		case err == nil:
			// Else New would fail later, with the first runner of the last server.
			if err := c.trees.Readable(parent); err != nil {
				return fmt.Errorf("this server can't read the cgroups below %s: restart the sandbox helper, which makes them readable: %w", parent, err)
			}
			c.offered, c.runtimes = answer.Network, answer.Runtimes
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
