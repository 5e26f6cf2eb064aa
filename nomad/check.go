package nomad

import (
	"context"
	"errors"
	"fmt"

	"github.com/rockpool/rockpool/nomad/job"
)

// Check finds out whether runners can be made here: that Nomad answers, that
// the token allows what is needed, that a node can run the template's driver,
// and that Nomad takes the template. Its error names all that is missing, one
// per line, with what to do; where Nomad doesn't answer it is
// CLUSTER_UNAVAILABLE and nothing else, and waiting may help. It needs no Run.
func (c *Cluster) Check(ctx context.Context) error {
	if _, err := c.nomad.Leader(ctx); err != nil {
		return err
	}
	driver, err := c.environments.Check(ctx)
	missing := []error{err}
	if driver != "" {
		missing = append(missing, c.checkNodes(ctx, driver))
	}
	// What registering and alloc exec need shows when a runner starts.
	missing = append(missing, c.reader.Check(ctx))
	if c.config.Jobs.Driver == job.RawExec && len(c.config.Jobs.Template) == 0 {
		c.config.Logger.Warn("raw_exec is unsafe: it isolates runners neither from each other nor from the machine")
	}
	return errors.Join(missing...)
}

// checkNodes looks for a node with the driver.
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
	return fmt.Errorf("none of Nomad's %d %s is ready and eligible with a healthy driver %s: enable it in the clients' configuration, or name another one", all, nodes, driver)
}
