package nomad

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/nomad/outcome"
	"github.com/rockpool/rockpool/runtime"
)

const (
	// scheduleEntries bounds each list: Nomad keeps what has ended for
	// hours, and a busy pool makes thousands in one.
	scheduleEntries = 1000
	// scheduleFresh is how long one answer does for all callers: a page that ten people look
	// at must not make ten times as many calls.
	scheduleFresh = time.Second
)

// A schedule is what Nomad's scheduler did and does for the runners.
type schedule struct {
	rounds *listing.Rounds

	mu   sync.Mutex // guards last
	last *scheduled // nil: not listed yet; never changed
}

// scheduled is a schedule at one time, the youngest first.
type scheduled struct {
	at          time.Time
	evaluations []runtime.Evaluation
	allocations []runtime.Allocation
}

// now returns what was listed a moment ago, or lists it, once for all callers that wait.
func (s *schedule) now(ctx context.Context) (*scheduled, error) {
	if last := s.known(); last != nil && time.Since(last.at) < scheduleFresh {
		return last, nil
	}
	if err := s.rounds.Join(ctx); err != nil {
		return nil, err
	}
	return s.known(), nil
}

func (s *schedule) known() *scheduled {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Evaluations returns a page of Nomad's evaluations of runners, the youngest
// first, and how many the filter picks in all: of the latest 1000, and of those
// that are blocked.
func (c *Cluster) Evaluations(ctx context.Context, f runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	if err := c.ready(ctx); err != nil {
		return nil, 0, err
	}
	s, err := c.schedule.now(ctx)
	if err != nil {
		return nil, 0, err
	}
	page, total := runtime.Paginate(picked(s.evaluations, func(x runtime.Evaluation) bool { return f.Matches(x.RunnerID, x.EnvironmentID, x.Status) }), f,
		func(x runtime.Evaluation) string { return string(x.ID) })
	return page, total, nil
}

// Allocations returns a page of runners' allocations, as Evaluations does, those of
// the latest runners that this server removed included.
func (c *Cluster) Allocations(ctx context.Context, f runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	if err := c.ready(ctx); err != nil {
		return nil, 0, err
	}
	s, err := c.schedule.now(ctx)
	if err != nil {
		return nil, 0, err
	}
	page, total := runtime.Paginate(picked(s.allocations, func(x runtime.Allocation) bool { return f.Matches(x.RunnerID, x.EnvironmentID, x.Status) }), f,
		func(x runtime.Allocation) string { return string(x.ID) })
	return page, total, nil
}

func picked[T any](all []T, picks func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, one := range all {
			if picks(one) && !yield(one) {
				return
			}
		}
	}
}

// listSchedule is one round of the schedule.
func (c *Cluster) listSchedule(ctx context.Context) error {
	var all []*api.Evaluation
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
	now := c.scheduled(all)
	c.schedule.mu.Lock()
	defer c.schedule.mu.Unlock()
	c.schedule.last = now
	return nil
}

// scheduled returns what evaluations, and the allocations of the last refresh, say.
func (c *Cluster) scheduled(evaluations []*api.Evaluation) *scheduled {
	s := &scheduled{at: time.Now()}
	ids := outcome.IdentifyEvaluations(evaluations)
	slices.SortFunc(evaluations, func(a, b *api.Evaluation) int {
		return cmp.Or(cmp.Compare(b.CreateIndex, a.CreateIndex), cmp.Compare(b.ID, a.ID))
	})
	evaluations = slices.CompactFunc(evaluations, func(a, b *api.Evaluation) bool { return a.ID == b.ID }) // a blocked one may be among the latest
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
			allocation := outcome.Allocation(a, e.runner, e.ready)
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
