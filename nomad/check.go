package nomad

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// Check finds out whether runners can be made here: that Nomad answers, that
// the token allows what is needed, that a node can run the template's driver,
// and that Nomad takes the template. Its error names all that is missing, one
// per line, with what to do; where Nomad doesn't answer it is
// CLUSTER_UNAVAILABLE and nothing else, and waiting may help. It needs no Run.
func (c *Cluster) Check(ctx context.Context) error {
	if err := c.call(ctx, "ask for the leader", func(ctx context.Context) error {
		_, err := c.leader(ctx)
		return err
	}); err != nil {
		return err
	}
	var missing []error
	job, err := c.checkTemplate(ctx)
	missing = append(missing, err)
	if job != nil {
		missing = append(missing, c.checkNodes(ctx, job))
	}
	missing = append(missing, c.checkToken(ctx))
	if c.config.Driver == RawExec && len(c.config.Template) == 0 {
		c.log.Warn("raw_exec is unsafe: it keeps runners apart neither from each other nor from the machine")
	}
	return errors.Join(missing...)
}

// leader returns the leader's address. Nomad's own method takes no context.
func (c *Cluster) leader(ctx context.Context) (address string, err error) {
	_, err = c.nomad.calls.Raw().Query("/v1/status/leader", &address, query(ctx))
	return address, err
}

// checkTemplate has Nomad validate a runner's job.
func (c *Cluster) checkTemplate(ctx context.Context) (*api.Job, error) {
	base, err := c.readBase(ctx)
	if err != nil {
		return nil, err
	}
	env := defaultEnvironment("check")
	env.Revision, env.RunnerRevision = 1, 1
	_, task, err := runnerTask(base)
	if err != nil {
		return nil, err
	}
	env.Image = runtime.DefaultImage
	if driver := Driver(task.Driver); drivers[driver].contained && task.Config["image"] == nil {
		env.Image = "check:1"
	}
	job, err := c.config.templateJob(base, env, 0)
	if err != nil {
		return nil, err
	}
	if namespace := c.nomad.settings.Namespace; namespace != "" {
		job.Namespace = &namespace // unlike a registration, a validation looks there alone
	}
	var answer *api.JobValidateResponse
	err = c.call(ctx, "validate the template", func(ctx context.Context) error {
		var err error
		answer, _, err = c.nomad.calls.Jobs().Validate(job, writing(ctx))
		return err
	})
	if err == nil && answer.Error != "" {
		err = runtime.Invalid("template", "must be a job that Nomad takes: %s", shown(answer.Error))
	}
	return job, err
}

// checkNodes looks for a node with the driver.
func (c *Cluster) checkNodes(ctx context.Context, job *api.Job) error {
	c.mu.Lock()
	c.nodesOld = true
	c.mu.Unlock()
	if err := c.refreshNodes(ctx); err != nil {
		return err
	}
	_, task, err := runnerTask(job)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, node := range c.nodes {
		if fit(node, task.Driver) {
			return nil
		}
	}
	return fmt.Errorf("none of Nomad's %s is ready and eligible with a healthy driver %s: enable it in the clients' configuration, or name another one", nodes(len(c.nodes)), task.Driver)
}

// fit reports whether a node takes tasks of a driver.
func fit(node *api.NodeListStub, driver string) bool {
	d := node.Drivers[driver]
	return node.Status == api.NodeStatusReady && node.SchedulingEligibility == api.NodeSchedulingEligible && !node.Drain && d != nil && d.Detected && d.Healthy
}

// checkToken tries what the lists need. What registering and alloc exec need
// shows when a runner starts.
func (c *Cluster) checkToken(ctx context.Context) error {
	l := &listing{}
	var missing []error
	for _, step := range []struct {
		what string
		do   func(context.Context, *listing) error
	}{
		{"list jobs", c.listJobs}, {"list allocations", c.listAllocations}, {"list evaluations", c.listEvaluations}, {"list claims", c.listVariables},
	} {
		missing = append(missing, c.call(ctx, step.what, func(ctx context.Context) error { return step.do(ctx, l) }))
	}
	return errors.Join(missing...)
}
