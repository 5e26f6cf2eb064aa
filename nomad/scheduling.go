package nomad

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/runtime"
)

// The bounds of the lists that the pages of evaluations and allocations show.
const (
	// scheduleEntries bounds each list. Nomad keeps ended evaluations for hours, and a busy pool
	// causes thousands in one hour.
	scheduleEntries = 1000
	// scheduleFresh is how long callers share one answer: ten viewers of a page must not cause ten
	// times as many calls.
	scheduleFresh = time.Second
)

type schedule struct {
	rounds *listing.Rounds
	last   atomic.Pointer[scheduleSnapshot]
}

// scheduleSnapshot is a schedule at one moment, newest first. It is never modified.
type scheduleSnapshot struct {
	at          time.Time
	evaluations []runtime.Evaluation
	allocations []runtime.Allocation
}

// known returns a schedule that is at most scheduleFresh old, or reads one for all waiting callers.
func (c *Cluster) known(ctx context.Context) (*scheduleSnapshot, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	if last := c.schedule.last.Load(); last != nil && time.Since(last.at) < scheduleFresh {
		return last, nil
	}
	err := c.schedule.rounds.Join(ctx)
	return c.schedule.last.Load(), err
}

// Evaluations returns a page of Nomad's evaluations of runners, newest first, and the number of all
// that match the filter. It covers the latest 1000 evaluations and all blocked ones.
func (c *Cluster) Evaluations(ctx context.Context, f runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	s, err := c.known(ctx)
	if err != nil {
		return nil, 0, err
	}
	page, total := runtime.Paginate(picked(s.evaluations, func(x runtime.Evaluation) bool { return f.Matches(x.RunnerID, x.EnvironmentID, x.Status) }), f,
		func(x runtime.Evaluation) string { return string(x.ID) })
	return page, total, nil
}

// Allocations returns a page of runners' allocations, newest first, and the number of all that
// match the filter. It includes those of the latest runners that this server removed.
func (c *Cluster) Allocations(ctx context.Context, f runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	s, err := c.known(ctx)
	if err != nil {
		return nil, 0, err
	}
	page, total := runtime.Paginate(picked(s.allocations, func(x runtime.Allocation) bool { return f.Matches(x.RunnerID, x.EnvironmentID, x.Status) }), f,
		func(x runtime.Allocation) string { return string(x.ID) })
	return page, total, nil
}

func picked[T any](all []T, picks func(T) bool) iter.Seq[T] {
	return slices.Values(slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !picks(one) }))
}

func (c *Cluster) listSchedule(ctx context.Context) error {
	var all []*api.Evaluation
	// The latest evaluations may not include all blocked ones, which can be old.
	for _, list := range []struct{ what, more string }{
		{"list evaluations", ""},
		{"list blocked evaluations", ` and Status == "blocked"`},
	} {
		err := c.nomad.Call(ctx, list.what, func(ctx context.Context) error {
			q := c.reader.Ours(ctx, "JobID")
			q.Filter += list.more
			q.PerPage, q.Reverse = scheduleEntries, true
			page, _, err := c.nomad.API().Evaluations().List(q)
			if err == nil {
				all = append(all, page...)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	c.schedule.last.Store(c.scheduled(all))
	return nil
}

// scheduled converts evaluations and the allocations of the last refresh.
func (c *Cluster) scheduled(evaluations []*api.Evaluation) *scheduleSnapshot {
	s := &scheduleSnapshot{at: time.Now()}
	ids := listing.IdentifyEvaluations(evaluations)
	slices.SortFunc(evaluations, func(a, b *api.Evaluation) int {
		return cmp.Or(cmp.Compare(b.CreateIndex, a.CreateIndex), cmp.Compare(b.ID, a.ID))
	})
	evaluations = slices.CompactFunc(evaluations, func(a, b *api.Evaluation) bool { return a.ID == b.ID }) // both lists may have a blocked one
	r := &c.runners
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range evaluations {
		if id, ours := c.names().RunnerOf(e.JobID); ours {
			evaluation := ids.Evaluation(e)
			evaluation.RunnerID, evaluation.EnvironmentID, evaluation.URL = id, r.environment(id), c.nomad.Pages.Evaluation(e.ID)
			s.evaluations = append(s.evaluations, evaluation)
		}
	}
	for _, e := range r.entries {
		for _, a := range e.allocations {
			allocation := listing.Allocation(a, e.runner, e.ready)
			allocation.EvaluationID = ids[a.EvalID]
			s.allocations = append(s.allocations, allocation)
		}
	}
	for gone := range r.past.All() {
		s.allocations = append(s.allocations, gone.Allocations...)
	}
	slices.SortFunc(s.allocations, func(a, b runtime.Allocation) int { return cmp.Compare(b.ID, a.ID) })
	return s
}
