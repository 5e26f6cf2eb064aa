package nomad

import (
	"context"
	"errors"
	"fmt"

	"github.com/rockpool/rockpool/nomad/job"
)

// Check checks whether runners can be started: Nomad answers, the token has the permissions, a node
// can run the template's driver, and Nomad accepts the template. The error lists everything that is
// missing, one item per line, with what to do. If Nomad doesn't answer, the error is only
// CLUSTER_UNAVAILABLE, and waiting may help. Check doesn't need Run.
func (c *Cluster) Check(ctx context.Context) error {
	if _, err := c.nomad.Leader(ctx); err != nil {
		return err
	}
	driver, err := c.environments.Check(ctx)
	missing := []error{err}
	if driver != "" {
		missing = append(missing, c.checkNodes(ctx, driver))
	}
	// The permissions for registering and alloc exec show only when a runner starts.
	missing = append(missing, c.reader.Check(ctx))
	if c.config.Jobs.Driver == job.RawExec && len(c.config.Jobs.Template) == 0 {
		c.config.Logger.Warn("the driver raw_exec is unsafe: it doesn't isolate runners from each other or from the machine")
	}
	return errors.Join(missing...)
}

// checkNodes checks that a node has the driver.
func (c *Cluster) checkNodes(ctx context.Context, driver job.Driver) error {
	c.nodes.Outdate()
	if err := c.nodes.Refresh(ctx); err != nil {
		return err
	}
	taking, all := c.nodes.Taking(driver)
	if taking > 0 {
		return nil
	}
	nodes := "nodes"
	if all == 1 {
		nodes = "node"
	}
	return fmt.Errorf("none of Nomad's %d %s is ready and eligible with a healthy driver %s: enable it in the configuration of Nomad's clients, or choose another driver", all, nodes, driver)
}
