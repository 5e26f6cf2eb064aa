// Package listing reads Nomad's lists of runners and nodes, and derives the state of a runner from
// them, with the reason. Concurrent callers share one read, and no result is older than its caller's
// call. Texts for clients contain no paths of nodes and no answers of registries.
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

// A Listing is what Nomad's lists say of all runners.
type Listing struct {
	Evaluations map[runtime.RunnerID][]*api.Evaluation
	Jobs        map[runtime.RunnerID]*api.JobListStub
	Foreign     map[runtime.RunnerID]bool // runners whose job belongs to another server, though its name has this server's prefix
	JobsIndex   uint64                    // Nomad's index of the list of jobs
	Allocations map[runtime.RunnerID][]*api.AllocationListStub
	Variables   map[runtime.RunnerID]*api.VariableMetadata
}

// A Reader reads the lists of one server's runners. Its methods are safe for concurrent use.
type Reader struct {
	Nomad *connection.Client
	Names job.Names
}

// Read reads all lists; that of evaluations only on request. The order matters. Evaluations come
// before allocations, so that an ended evaluation has its allocation listed. Jobs come before
// variables. The list of jobs is at least as new as index: a new leader, or a server without one,
// may not know the latest registrations.
func (r Reader) Read(ctx context.Context, evaluations bool, index uint64) (*Listing, error) {
	l := &Listing{JobsIndex: index}
	reads := r.reads()
	if !evaluations {
		reads = reads[1:]
	}
	for _, read := range reads {
		if err := read(ctx, l); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// reads returns the functions that fill a Listing, that of evaluations first.
func (r Reader) reads() []func(context.Context, *Listing) error {
	return []func(context.Context, *Listing) error{r.evaluations, r.jobs, r.allocations, r.variables}
}

// Check reads each list, and returns the errors of all.
func (r Reader) Check(ctx context.Context) error {
	var failed []error
	for _, read := range r.reads() {
		failed = append(failed, read(ctx, &Listing{}))
	}
	return errors.Join(failed...)
}

// Ours returns the options of a list of things with a field that contains the name of a runner's
// job. No character of a prefix is special in a regular expression.
func (r Reader) Ours(ctx context.Context, field string) *api.QueryOptions {
	q := connection.Query(ctx)
	q.Filter = fmt.Sprintf("%s matches \"^%s\"", field, r.Names.Runners())
	return q
}

func (r Reader) evaluations(ctx context.Context, l *Listing) error {
	return r.Nomad.Call(ctx, "list evaluations", func(ctx context.Context) error {
		all, _, err := r.Nomad.API().Evaluations().List(r.Ours(ctx, "JobID"))
		l.Evaluations = byRunner(all, r.Names.RunnerOf, func(e *api.Evaluation) string { return e.JobID })
		return err
	})
}

// jobs reads the list of jobs. It isn't older than l.JobsIndex.
func (r Reader) jobs(ctx context.Context, l *Listing) error {
	return r.Nomad.Call(ctx, "list jobs", func(ctx context.Context) error {
		q := connection.Query(ctx)
		q.Prefix = r.Names.Runners()
		jobs, meta, err := r.Nomad.API().Jobs().ListOptions(&api.JobListOptions{Fields: &api.JobListFields{Meta: true}}, q)
		if err != nil {
			return err
		}
		if meta.LastIndex < l.JobsIndex {
			return connection.ErrStale
		}
		l.Jobs, l.Foreign, l.JobsIndex = map[runtime.RunnerID]*api.JobListStub{}, map[runtime.RunnerID]bool{}, meta.LastIndex
		for _, stub := range jobs {
			if id, ok := r.Names.Owned(stub); ok {
				l.Jobs[id] = stub
			} else {
				l.Foreign[id] = true
			}
		}
		return nil
	})
}

func (r Reader) allocations(ctx context.Context, l *Listing) error {
	return r.Nomad.Call(ctx, "list allocations", func(ctx context.Context) error {
		q := r.Ours(ctx, "JobID")
		q.Params = map[string]string{"resources": "true"}
		all, _, err := r.Nomad.API().Allocations().List(q)
		l.Allocations = byRunner(all, r.Names.RunnerOf, func(a *api.AllocationListStub) string { return a.JobID })
		return err
	})
}

// variables reads the metadata of variables. Their contents aren't in the list.
func (r Reader) variables(ctx context.Context, l *Listing) error {
	return r.Nomad.Call(ctx, "list claims", func(ctx context.Context) error {
		all, _, err := r.Nomad.API().Variables().PrefixList(r.Names.Claims(), connection.Query(ctx))
		l.Variables = map[runtime.RunnerID]*api.VariableMetadata{}
		for _, v := range all {
			if id, ok := r.Names.ClaimOf(v.Path); ok {
				l.Variables[id] = v
			}
		}
		return err
	})
}

func byRunner[T any](all []T, runnerOf func(string) (runtime.RunnerID, bool), job func(T) string) map[runtime.RunnerID][]T {
	found := map[runtime.RunnerID][]T{}
	for _, one := range all {
		if id, ok := runnerOf(job(one)); ok {
			found[id] = append(found[id], one)
		}
	}
	return found
}
