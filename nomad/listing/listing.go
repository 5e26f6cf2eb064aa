// Package listing reads what Nomad lists of runners and nodes, and shares one reading among
// all callers that wait for one.
package listing

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
)

// A Listing is what a few lists say of all runners.
type Listing struct {
	Evaluations map[runtime.RunnerID][]*api.Evaluation
	Jobs        map[runtime.RunnerID]*api.JobListStub
	Foreign     map[runtime.RunnerID]bool // whose job another server owns, though its name looks like ours
	JobsIndex   uint64
	Allocations map[runtime.RunnerID][]*api.AllocationListStub
	Variables   map[runtime.RunnerID]*api.VariableMetadata
}

// A Reader reads lists of the runners with some names. Its methods may be called at once.
type Reader struct {
	nomad *connection.Client
	names job.Names
}

// NewReader returns a reader.
func NewReader(nomad *connection.Client, names job.Names) Reader { return Reader{nomad, names} }

// Read reads all lists, that of evaluations only where it is wanted. They are read one after
// the other: evaluations before allocations, so that an evaluation that has ended has its
// allocation listed, and jobs before variables. The list of jobs is as young as index at
// least: a new leader, or a server that answers for none, may not know yet what was
// registered before.
func (r Reader) Read(ctx context.Context, evaluations bool, index uint64) (*Listing, error) {
	l := &Listing{}
	for _, s := range r.steps(l, index) {
		if s.what == listEvaluations && !evaluations {
			continue
		}
		if err := r.nomad.Call(ctx, s.what, s.read); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Check reads each list, and returns the errors of all.
func (r Reader) Check(ctx context.Context) error {
	var failed []error
	for _, s := range r.steps(&Listing{}, 0) {
		failed = append(failed, r.nomad.Call(ctx, s.what, s.read))
	}
	return errors.Join(failed...)
}

const listEvaluations = "list evaluations"

type step struct {
	what string
	read func(context.Context) error
}

func (r Reader) steps(l *Listing, index uint64) []step {
	return []step{
		{listEvaluations, func(ctx context.Context) error { return r.evaluations(ctx, l) }},
		{"list jobs", func(ctx context.Context) error { return r.jobs(ctx, l, index) }},
		{"list allocations", func(ctx context.Context) error { return r.allocations(ctx, l) }},
		{"list claims", func(ctx context.Context) error { return r.variables(ctx, l) }},
	}
}

// Ours returns the options of a list of what has a field with the name of a runner's job. A
// prefix has no character that is special in a regular expression.
func (r Reader) Ours(ctx context.Context, field string) *api.QueryOptions {
	q := connection.Query(ctx)
	q.Filter = fmt.Sprintf("%s matches \"^%s\"", field, r.names.Runners())
	return q
}

func (r Reader) evaluations(ctx context.Context, l *Listing) error {
	all, _, err := r.nomad.API().Evaluations().List(r.Ours(ctx, "JobID"))
	l.Evaluations = map[runtime.RunnerID][]*api.Evaluation{}
	for _, e := range all {
		if id, ok := r.names.RunnerOf(e.JobID); ok {
			l.Evaluations[id] = append(l.Evaluations[id], e)
		}
	}
	return err
}

func (r Reader) jobs(ctx context.Context, l *Listing, index uint64) error {
	q := connection.Query(ctx)
	q.Prefix = r.names.Runners()
	jobs, meta, err := r.nomad.API().Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, q)
	if err != nil {
		return err
	}
	if meta.LastIndex < index {
		return connection.ErrStale
	}
	l.Jobs, l.Foreign, l.JobsIndex = map[runtime.RunnerID]*api.JobListStub{}, map[runtime.RunnerID]bool{}, meta.LastIndex
	for _, stub := range jobs {
		if id, ok := r.names.Owned(stub); ok {
			l.Jobs[id] = stub
		} else {
			l.Foreign[id] = true
		}
	}
	return nil
}

func (r Reader) allocations(ctx context.Context, l *Listing) error {
	q := r.Ours(ctx, "JobID")
	q.Params = map[string]string{"resources": "true"}
	all, _, err := r.nomad.API().Allocations().List(q)
	l.Allocations = map[runtime.RunnerID][]*api.AllocationListStub{}
	for _, a := range all {
		if id, ok := r.names.RunnerOf(a.JobID); ok {
			l.Allocations[id] = append(l.Allocations[id], a)
		}
	}
	return err
}

func (r Reader) variables(ctx context.Context, l *Listing) error {
	all, _, err := r.nomad.API().Variables().PrefixList(r.names.Claims(), connection.Query(ctx))
	l.Variables = map[runtime.RunnerID]*api.VariableMetadata{}
	for _, v := range all {
		if id, ok := r.names.ClaimOf(v.Path); ok {
			l.Variables[id] = v
		}
	}
	return err
}
