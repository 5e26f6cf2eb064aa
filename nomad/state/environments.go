// Package state keeps in Nomad what must outlast a server: environments, a record of each runner, and
// the lock of the prefix. An environment is a job that is never dispatched; records and the lock are
// variables. Writes are conditional. So of concurrent changes of an environment, and of concurrent
// claims, one succeeds, and at most one server at a time owns a prefix.
package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/health"
)

// Environments are the environments of one server. Its methods are safe for concurrent use.
type Environments struct {
	nomad    *connection.Client
	jobs     job.Config
	problems *health.Problems // reports environments that aren't available
	writing  fairqueue.Slots  // a single slot: one writer at a time

	mu        sync.Mutex                         // guards the fields below
	base      *api.Job                           // from which templates are rendered, when it has been read
	templates map[runtime.EnvironmentID]template // by environment
	highest   uint64                             // the highest index of Nomad's jobs so far: an older list is ignored
}

// NewEnvironments returns a store. It doesn't call Nomad.
func NewEnvironments(nomad *connection.Client, jobs job.Config, problems *health.Problems) *Environments {
	return &Environments{
		nomad: nomad, jobs: jobs, problems: problems,
		writing: make(fairqueue.Slots, 1), templates: map[runtime.EnvironmentID]template{},
	}
}

// Put implements runtime.Cluster's PutEnvironment. It also returns INVALID_INPUT if the template's
// driver can't run the environment, or Nomad rejects the template.
func (s *Environments) Put(ctx context.Context, env runtime.Environment) error {
	base, err := s.readBase(ctx)
	if err != nil {
		return err
	}
	// An environment that can't be rendered is rejected before it waits for other writers.
	if _, err := s.jobs.RenderTemplate(base, env, 0); err != nil {
		return err
	}
	return s.writing.Do(ctx, func() error { return s.put(ctx, base, env) })
}

// put stores env as the next revision, if the stored one is the one before. It succeeds without a
// write if env is stored already. The caller has the slot of writing.
func (s *Environments) put(ctx context.Context, base *api.Job, env runtime.Environment) error {
	stored, err := s.nomad.Job(ctx, s.jobs.Names().Environment(env.ID))
	if err != nil {
		return err
	}
	// Index 0 registers only a job that doesn't exist yet.
	index, version := uint64(0), uint64(0)
	if stored != nil {
		index, version = *stored.JobModifyIndex, *stored.Version+1
		have, err := s.jobs.ReadEnvironment(stored)
		switch {
		case errors.Is(err, job.ErrForeign):
			return runtime.Errorf(runtime.CodeConflict, "environment %s belongs to another server", env.ID)
		case err != nil: // its revision is unknown, so it is replaced completely
		// It is stored already, perhaps by an earlier call whose answer was lost.
		case have.Revision == env.Revision && have.Same(env):
			return s.keepTemplate(env, stored)
		case have.Revision != env.Revision-1:
			return runtime.Errorf(runtime.CodeConflict, "environment %s is at revision %d", env.ID, have.Revision)
		}
	} else if env.Revision != 1 {
		return runtime.Errorf(runtime.CodeConflict, "environment %s doesn't exist", env.ID)
	}
	wanted, err := s.jobs.RenderTemplate(base, env, version)
	if err != nil {
		return err
	}
	err = s.nomad.Call(ctx, fmt.Sprintf("store environment %s", env.ID), func(ctx context.Context) error {
		response, _, err := s.nomad.API().Jobs().EnforceRegister(wanted, index, connection.Writing(ctx))
		if err == nil {
			s.seen(response.JobModifyIndex)
			return nil
		}
		if !connection.Enforced(err) {
			return refusedInput(err)
		}
		// Another writer was faster, or an earlier attempt of this call that got no answer.
		now, _, infoErr := s.nomad.API().Jobs().Info(*wanted.ID, connection.Query(ctx))
		switch {
		case infoErr != nil && !connection.NotFound(infoErr):
			return infoErr
		case infoErr == nil && job.SameTemplate(now, wanted):
			return nil
		}
		return runtime.Errorf(runtime.CodeConflict, "environment %s was changed at the same time: read it again, and retry", env.ID)
	})
	if err != nil {
		return err
	}
	s.problems.Resolve(environmentSubject(env.ID))
	s.reportImage(env)
	return s.keepTemplate(env, wanted)
}

func (s *Environments) reportImage(env runtime.Environment) {
	if env.Pin.Unpinned == "" {
		s.problems.Resolve(imageSubject(env.ID))
		return
	}
	s.problems.Report(imageSubject(env.ID), fmt.Sprintf("%s isn't pinned, so each node runs what it has by that name: %s", env.Image, env.Pin.Unpinned))
}

func imageSubject(id runtime.EnvironmentID) string { return "image of environment " + string(id) }

// refusedInput converts Nomad's rejection of a job to INVALID_INPUT.
func refusedInput(err error) error {
	if code, text := connection.Status(err); err != nil && !connection.Transient(err) && (code == 500 || code == 400) {
		return runtime.Invalid("environment", "Nomad can't store it: %s", connection.FirstLine(text))
	}
	return err
}

func environmentSubject(id runtime.EnvironmentID) string { return "environment " + string(id) }

// Delete implements runtime.Cluster's DeleteEnvironment.
func (s *Environments) Delete(ctx context.Context, id runtime.EnvironmentID) error {
	return s.writing.Do(ctx, func() error {
		_, err := s.nomad.PurgeJob(ctx, fmt.Sprintf("delete environment %s", id), s.jobs.Names().Environment(id))
		if err == nil {
			s.mu.Lock()
			delete(s.templates, id)
			s.mu.Unlock()
			s.problems.Resolve(environmentSubject(id))
			s.problems.Resolve(imageSubject(id))
		}
		return err
	})
}

// All implements runtime.Cluster's Environments. If the job of an environment can't be read or was
// stopped, a problem reports that. The environment is then returned as it was known before, or left
// out.
func (s *Environments) All(ctx context.Context) ([]runtime.Environment, error) {
	var stubs []*api.JobListStub
	err := s.nomad.Call(ctx, "list environments", func(ctx context.Context) error {
		q := connection.Query(ctx)
		q.Prefix = s.jobs.Names().Environments()
		listed, meta, err := s.nomad.API().Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, q)
		if err == nil && !s.seen(meta.LastIndex) {
			err = connection.ErrStale // otherwise a new environment would seem to be deleted
		}
		stubs = listed
		return err
	})
	if err != nil {
		return nil, err
	}
	var all []runtime.Environment
	there, wrong := map[runtime.EnvironmentID]bool{}, map[runtime.EnvironmentID]bool{}
	for _, stub := range stubs {
		if stub.ParentID != "" { // someone dispatched the template
			continue
		}
		id := runtime.EnvironmentID(strings.TrimPrefix(stub.ID, s.jobs.Names().Environments()))
		// The list has no jobs, only their meta and indexes. A job is read again only if its index
		// has changed.
		known := s.known(id)
		env := known.env
		var err error
		if known.job == nil || known.index != stub.JobModifyIndex {
			env, err = s.readStored(ctx, stub.ID)
		}
		switch {
		case err == nil:
			all = append(all, env)
			there[id] = true
			s.reportImage(env)
		// It isn't this server's, or was deleted after the list.
		case errors.Is(err, job.ErrForeign) || errors.Is(err, errNone):
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case runtime.CodeOf(err) == runtime.CodeClusterUnavailable:
			return nil, err
		default:
			served := "it isn't served"
			if known.job != nil {
				served = "what was known of it is still served"
				all = append(all, known.env)
				there[id] = true
			}
			wrong[id] = true
			s.problems.Report(environmentSubject(id), fmt.Sprintf("its job %s can't be read, so %s: put it again, or purge the job (%v)", stub.ID, served, err))
		}
	}
	s.mu.Lock()
	// Environments that other programs deleted leave no template and no problem.
	maps.DeleteFunc(s.templates, func(id runtime.EnvironmentID, _ template) bool { return !there[id] })
	s.mu.Unlock()
	// A problem ends when the environment's job can be read again, or no longer exists.
	s.problems.ResolveFunc(func(subject string) bool {
		if id, ok := strings.CutPrefix(subject, imageSubject("")); ok {
			return !there[runtime.EnvironmentID(id)]
		}
		id, ok := strings.CutPrefix(subject, environmentSubject(""))
		return ok && !wrong[runtime.EnvironmentID(id)]
	})
	return all, nil
}

// seen records an index of Nomad's jobs, and reports whether it is at least as high as all before.
func (s *Environments) seen(index uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	young := index >= s.highest
	s.highest = max(s.highest, index)
	return young
}

var errNone = errors.New("the job doesn't exist")

func (s *Environments) readStored(ctx context.Context, jobID string) (runtime.Environment, error) {
	stored, err := s.nomad.Job(ctx, jobID)
	if err != nil {
		return runtime.Environment{}, err
	}
	if stored == nil {
		return runtime.Environment{}, errNone
	}
	env, err := s.jobs.ReadEnvironment(stored)
	if err == nil {
		err = s.keepTemplate(env, stored)
	}
	return env, err
}

type template struct {
	env   runtime.Environment
	job   *api.Job // never modified
	index uint64   // of the stored job's last change, or 0 if it is unknown
}

func (s *Environments) known(id runtime.EnvironmentID) template {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.templates[id]
}

// keepTemplate keeps a stored job, with defaults for the fields that its author left open.
func (s *Environments) keepTemplate(env runtime.Environment, stored *api.Job) error {
	job, err := s.jobs.CompleteTemplate(stored, env)
	if err != nil {
		return err
	}
	t := template{env: env, job: job}
	if stored.JobModifyIndex != nil {
		t.index = *stored.JobModifyIndex
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.templates[env.ID] = t
	return nil
}

// Template returns the template for a runner of env: the stored one of its revision, with
// everything that a person changed in it. If that isn't available, it renders a new one.
func (s *Environments) Template(ctx context.Context, env runtime.Environment) (*api.Job, error) {
	if t := s.known(env.ID); t.job != nil && t.env.Revision == env.Revision {
		return t.job, nil
	}
	stored, err := s.nomad.Job(ctx, s.jobs.Names().Environment(env.ID))
	if err != nil {
		return nil, err
	}
	if stored != nil {
		if have, err := s.jobs.ReadEnvironment(stored); err == nil && have.Revision == env.Revision {
			if err := s.keepTemplate(env, stored); err != nil {
				return nil, err
			}
			return s.known(env.ID).job, nil
		}
	}
	base, err := s.readBase(ctx)
	if err != nil {
		return nil, err
	}
	return s.jobs.RenderTemplate(base, env, 0)
}

// readBase returns the job that templates are rendered from. Nomad parses one in HCL once.
func (s *Environments) readBase(ctx context.Context) (*api.Job, error) {
	s.mu.Lock()
	base := s.base
	s.mu.Unlock()
	if base != nil {
		return base, nil
	}
	base, err := s.jobs.Base(func(hcl string) (*api.Job, error) {
		parsed := &api.Job{}
		err := s.nomad.Call(ctx, "parse the template", func(ctx context.Context) error { // ParseHCL accepts no context
			_, err := s.nomad.API().Raw().Write("/v1/jobs/parse", &api.JobsParseRequest{JobHCL: hcl}, parsed, connection.Writing(ctx))
			return err
		})
		return parsed, err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = base
	return base, nil
}

// Check lets Nomad validate a runner's job, and returns its driver, unless it can't be rendered.
func (s *Environments) Check(ctx context.Context) (job.Driver, error) {
	base, err := s.readBase(ctx)
	if err != nil {
		return "", err
	}
	sample, driver, err := s.jobs.Sample(base)
	if err != nil {
		return "", err
	}
	if namespace := s.nomad.Namespace(); namespace != "" {
		sample.Namespace = &namespace // a validation uses only this field, unlike a registration
	}
	var answer *api.JobValidateResponse
	err = s.nomad.Call(ctx, "validate the template", func(ctx context.Context) (err error) {
		answer, _, err = s.nomad.API().Jobs().Validate(sample, connection.Writing(ctx))
		return err
	})
	if err == nil && answer.Error != "" {
		err = runtime.Invalid("template", "Nomad rejects the job: %s", connection.FirstLine(answer.Error))
	}
	return driver, err
}
