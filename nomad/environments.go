package nomad

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// PutEnvironment returns INVALID_INPUT, too, for an environment that the
// template's driver can't run, and for a template that Nomad refuses.
func (c *Cluster) PutEnvironment(ctx context.Context, env runtime.Environment) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	base, err := c.readBase(ctx)
	if err != nil {
		return err
	}
	if _, err := c.config.templateJob(base, env, 0); err != nil {
		return err
	}
	return c.envTurn.Do(ctx, func() error { return c.putEnvironment(ctx, base, env) })
}

func (c *Cluster) putEnvironment(ctx context.Context, base *api.Job, env runtime.Environment) error {
	stored, err := c.readTemplateJob(ctx, env.ID)
	if err != nil {
		return err
	}
	index, version := uint64(0), uint64(0)
	if stored != nil {
		index, version = *stored.JobModifyIndex, *stored.Version+1
		have, err := c.config.readEnvironment(stored)
		switch {
		case errors.Is(err, errForeign):
			return runtime.Errorf(runtime.CodeConflict, "environment %s is another server's", env.ID)
		case err != nil: // so nobody knows its revision; it is replaced as a whole
		case have.Revision == env.Revision && have.PoolSize == env.PoolSize && have.SameRunners(env):
			c.keepTemplate(env, stored)
			return nil
		case have.Revision != env.Revision-1:
			return runtime.Errorf(runtime.CodeConflict, "environment %s is at revision %d", env.ID, have.Revision)
		}
	} else if env.Revision != 1 {
		return runtime.Errorf(runtime.CodeConflict, "environment %s isn't there", env.ID)
	}
	job, err := c.config.templateJob(base, env, version)
	if err != nil {
		return err
	}
	err = c.call(ctx, fmt.Sprintf("store environment %s", env.ID), func(ctx context.Context) error {
		_, _, err := c.nomad.calls.Jobs().EnforceRegister(job, index, writing(ctx))
		if err == nil || !enforced(err) {
			return refusedInput(err)
		}
		// Somebody else was faster, or an attempt of ours that wasn't answered.
		now, _, infoErr := c.nomad.calls.Jobs().Info(*job.ID, query(ctx))
		switch {
		case infoErr != nil && !notFound(infoErr):
			return infoErr
		case infoErr == nil && now.Meta[metaEnvironment] == job.Meta[metaEnvironment] && now.Meta[metaVersion] == job.Meta[metaVersion]:
			return nil
		}
		return runtime.Errorf(runtime.CodeConflict, "environment %s was changed by somebody else", env.ID)
	})
	if err == nil {
		c.keepTemplate(env, job)
		c.problems.Resolve(environmentSubject(env.ID))
	}
	return err
}

// refusedInput turns Nomad's refusal of a job into INVALID_INPUT: what a client
// said led to it.
func refusedInput(err error) error {
	if code, text := status(err); err != nil && !transient(err) && (code == 500 || code == 400) {
		return runtime.Invalid("environment", "can't be kept by Nomad: %s", shown(text))
	}
	return err
}

func environmentSubject(id runtime.EnvironmentID) string { return "environment " + string(id) }

// DeleteEnvironment implements runtime.Cluster.
func (c *Cluster) DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	return c.envTurn.Do(ctx, func() error {
		err := c.call(ctx, fmt.Sprintf("delete environment %s", id), func(ctx context.Context) error {
			_, _, err := c.nomad.calls.Jobs().Deregister(c.names.environment(id), true, writing(ctx))
			if notFound(err) {
				return nil
			}
			return err
		})
		if err == nil {
			c.mu.Lock()
			delete(c.templates, id)
			c.mu.Unlock()
			c.problems.Resolve(environmentSubject(id))
			c.problems.Resolve(agentlessSubject(id))
		}
		return err
	})
}

// Environments implements runtime.Cluster. One that can't be read is left out,
// and told by Status.
func (c *Cluster) Environments(ctx context.Context) ([]runtime.Environment, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	var stubs []*api.JobListStub
	err := c.call(ctx, "list environments", func(ctx context.Context) error {
		q := query(ctx)
		q.Prefix = c.names.environments()
		var err error
		stubs, _, err = c.nomad.calls.Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	var all []runtime.Environment
	for _, stub := range stubs {
		if stub.ParentID != "" { // somebody dispatched the template
			continue
		}
		env, err := c.readStored(ctx, stub.ID)
		var e *runtime.Error
		switch {
		case err == nil:
			all = append(all, env)
			c.problems.Resolve(environmentSubject(env.ID))
		case errors.Is(err, errForeign) || errors.Is(err, errNone):
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(err, &e) && e.Code == runtime.CodeClusterUnavailable:
			return nil, err
		default:
			c.problems.Report(environmentSubject(runtime.EnvironmentID(stub.ID[len(c.names.environments()):])),
				fmt.Sprintf("its job %s can't be read, so it isn't served: put it again (%v)", stub.ID, err))
		}
	}
	return all, nil
}

// errNone says that a template job isn't there (any more).
var errNone = errors.New("it isn't there")

// readStored reads one environment, and keeps the template of its runners.
func (c *Cluster) readStored(ctx context.Context, jobID string) (runtime.Environment, error) {
	job, err := c.readJob(ctx, jobID)
	if err != nil {
		return runtime.Environment{}, err
	}
	if job == nil {
		return runtime.Environment{}, errNone
	}
	env, err := c.config.readEnvironment(job)
	if err == nil {
		c.keepTemplate(env, job)
	}
	return env, err
}

func (c *Cluster) readTemplateJob(ctx context.Context, id runtime.EnvironmentID) (*api.Job, error) {
	return c.readJob(ctx, c.names.environment(id))
}

// readJob returns a job, or nil if it isn't there.
func (c *Cluster) readJob(ctx context.Context, id string) (*api.Job, error) {
	var job *api.Job
	err := c.call(ctx, "read the job "+id, func(ctx context.Context) error {
		found, _, err := c.nomad.calls.Jobs().Info(id, query(ctx))
		if notFound(err) {
			return nil
		}
		job = found
		return err
	})
	return job, err
}

// A template is what runners of one revision of an environment are made from.
type template struct {
	revision int
	job      *api.Job // never changed
}

func (c *Cluster) keepTemplate(env runtime.Environment, job *api.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.templates[env.ID] = template{env.Revision, job}
}

// templateOf returns the template that a runner of env is made from: the stored
// one of its revision, with all that a person changed in it, else one made anew.
func (c *Cluster) templateOf(ctx context.Context, env runtime.Environment) (*api.Job, error) {
	c.mu.Lock()
	t, known := c.templates[env.ID]
	c.mu.Unlock()
	if known && t.revision == env.Revision {
		return t.job, nil
	}
	stored, err := c.readTemplateJob(ctx, env.ID)
	if err != nil {
		return nil, err
	}
	if stored != nil {
		if have, err := c.config.readEnvironment(stored); err == nil && have.Revision == env.Revision {
			c.keepTemplate(env, stored)
			return stored, nil
		}
	}
	base, err := c.readBase(ctx)
	if err != nil {
		return nil, err
	}
	return c.config.templateJob(base, env, 0)
}

// readBase returns the job that templates are made from. An own one in HCL is
// parsed by Nomad, once.
func (c *Cluster) readBase(ctx context.Context) (*api.Job, error) {
	c.mu.Lock()
	base := c.base
	c.mu.Unlock()
	if base != nil {
		return base, nil
	}
	base, err := c.config.base(func(hcl string) (*api.Job, error) {
		job := &api.Job{}
		err := c.call(ctx, "parse the template", func(ctx context.Context) error { // ParseHCL takes no context
			_, err := c.nomad.calls.Raw().Write("/v1/jobs/parse", &api.JobsParseRequest{JobHCL: hcl}, job, writing(ctx))
			return err
		})
		return job, err
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = base
	return base, nil
}
