package nomad

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/past"
)

// A schedule is what Nomad's scheduler did and does for runners of ours, the
// youngest first.
type schedule struct {
	at          time.Time
	evaluations []runtime.Evaluation
	allocations []runtime.Allocation
}

const (
	// scheduleEntries bounds each list: Nomad keeps what has ended for
	// hours, and a busy pool makes thousands in one.
	scheduleEntries = 1000
	// scheduleFresh is how long one answer does for all who ask: a page that is
	// looked at by ten people must not make ten times as many calls.
	scheduleFresh = time.Second
)

// Evaluations returns a page of Nomad's evaluations of runners, the youngest
// first, and how many the filter picks in all: of the latest 1000, and of those
// that are blocked.
func (c *Cluster) Evaluations(ctx context.Context, f runtime.EvaluationFilter) ([]runtime.Evaluation, int, error) {
	s, err := c.scheduled(ctx)
	if err != nil {
		return nil, 0, err
	}
	page, total := runtime.Cut(func(yield func(runtime.Evaluation) bool) {
		for _, e := range s.evaluations {
			if f.Picks(e.RunnerID, e.EnvironmentID, e.Status) && !yield(e) {
				return
			}
		}
	}, f, func(e runtime.Evaluation) string { return string(e.ID) })
	return page, total, nil
}

// Allocations returns a page of runners' allocations, as Evaluations does, those of
// the latest runners that this server removed included.
func (c *Cluster) Allocations(ctx context.Context, f runtime.AllocationFilter) ([]runtime.Allocation, int, error) {
	s, err := c.scheduled(ctx)
	if err != nil {
		return nil, 0, err
	}
	page, total := runtime.Cut(func(yield func(runtime.Allocation) bool) {
		for _, a := range s.allocations {
			if f.Picks(a.RunnerID, a.EnvironmentID, a.Status) && !yield(a) {
				return
			}
		}
	}, f, func(a runtime.Allocation) string { return string(a.ID) })
	return page, total, nil
}

// scheduled returns what was listed a moment ago, or lists it, once for all who
// ask meanwhile.
func (c *Cluster) scheduled(ctx context.Context) (*schedule, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	known := func() *schedule {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.schedule
	}
	if s := known(); s != nil && time.Since(s.at) < scheduleFresh {
		return s, nil
	}
	if err := c.schedules.join(ctx, c.spawn, c.listSchedule); err != nil {
		return nil, err
	}
	return known(), nil
}

func (c *Cluster) listSchedule(ctx context.Context) error {
	var latest, blocked []*api.Evaluation
	evaluations := func(to *[]*api.Evaluation, more string) func(context.Context) error {
		return func(ctx context.Context) (err error) {
			*to, _, err = c.nomad.calls.Evaluations().List(c.latest(ctx, more))
			return err
		}
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"list evaluations", evaluations(&latest, "")},
		{"list blocked evaluations", evaluations(&blocked, ` and Status == "blocked"`)},
	} {
		if err := c.call(ctx, step.what, step.do); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.schedule = c.tellSchedule(append(latest, blocked...))
	return nil
}

// latest is ours, the youngest first, and bounded.
func (c *Cluster) latest(ctx context.Context, more string) *api.QueryOptions {
	q := c.ours(ctx, "JobID")
	q.Filter += more
	q.PerPage, q.Reverse = scheduleEntries, true
	return q
}

// tellSchedule returns what evaluations, and the allocations of the last look, say
// as clients are told of it. The caller holds mu.
func (c *Cluster) tellSchedule(evaluations []*api.Evaluation) *schedule {
	s := &schedule{at: time.Now()}
	ids := map[string]runtime.EvaluationID{"": ""} // by Nomad's
	for _, e := range evaluations {
		ids[e.ID] = runtime.EvaluationID(sortable(e.CreateIndex, e.ID))
	}
	slices.SortFunc(evaluations, func(a, b *api.Evaluation) int {
		return cmp.Or(cmp.Compare(b.CreateIndex, a.CreateIndex), cmp.Compare(b.ID, a.ID))
	})
	evaluations = slices.CompactFunc(evaluations, func(a, b *api.Evaluation) bool { return a.ID == b.ID }) // a blocked one may be among the latest
	for _, e := range evaluations {
		if id, ours := c.names.runnerOf(e.JobID, c.names.runners()); ours {
			s.evaluations = append(s.evaluations, c.tellEvaluation(e, id, ids))
		}
	}
	for _, e := range c.entries {
		for _, a := range e.allocations {
			s.allocations = append(s.allocations, tellAllocation(a, e, ids[a.EvalID]))
		}
	}
	for gone := range c.past.All() {
		s.allocations = append(s.allocations, gone.Allocations...)
	}
	slices.SortFunc(s.allocations, func(a, b runtime.Allocation) int { return cmp.Compare(b.ID, a.ID) })
	return s
}

// remember keeps what happened to a runner that is removed: Nomad forgets it
// with its job. The caller holds mu.
func (c *Cluster) remember(e *entry) {
	now := time.Now()
	gone := past.Runner{Environment: e.runner.Environment.ID, Events: e.events(runtime.TaskEvent{At: now, Kind: runtime.TaskEnded})}
	for _, a := range e.allocations {
		told := tellAllocation(a, e, "")
		told.Desired = runtime.DesiredStop
		if told.Status == runtime.AllocationPending || told.Status == runtime.AllocationRunning {
			told.Status = runtime.AllocationComplete
		}
		if told.EndedAt.IsZero() {
			told.EndedAt = now
		}
		gone.Allocations = append(gone.Allocations, told)
	}
	c.past.Add(e.id, gone)
}

// sortable is an id of Nomad's, which are random, so that ids made later sort
// later.
func sortable(index uint64, id string) string { return fmt.Sprintf("%016x-%s", index, id) }

// environmentOf returns a runner's environment; "" where it isn't known. The
// caller holds mu.
func (c *Cluster) environmentOf(id runtime.RunnerID) runtime.EnvironmentID {
	if e := c.entries[id]; e != nil {
		return e.runner.Environment.ID
	}
	gone, _ := c.past.Find(id)
	return gone.Environment
}

func (c *Cluster) tellEvaluation(e *api.Evaluation, runner runtime.RunnerID, ids map[string]runtime.EvaluationID) runtime.Evaluation {
	told := runtime.Evaluation{
		ID: ids[e.ID], Type: runtime.EvaluationPlace, RunnerID: runner, EnvironmentID: c.environmentOf(runner), Priority: e.Priority,
		Trigger: cmp.Or(triggers[e.TriggeredBy], runtime.TriggerOther), Status: cmp.Or(statuses[e.Status], runtime.EvaluationPending),
		Reason: explainEvaluation(e), PreviousID: ids[e.PreviousEval], NextID: cmp.Or(ids[e.BlockedEval], ids[e.NextEval]),
		CreatedAt: time.Unix(0, e.CreateTime), WaitUntil: e.WaitUntil, URL: c.ui.evaluation(e.ID),
	}
	if told.Trigger == runtime.TriggerDeregister {
		told.Type = runtime.EvaluationStop
	}
	for _, queued := range e.QueuedAllocations {
		told.Queued += queued
	}
	if told.Status != runtime.EvaluationPending && told.Status != runtime.EvaluationBlocked {
		told.EndedAt = time.Unix(0, e.ModifyTime)
	}
	return told
}

// triggers are what Nomad says made an evaluation.
var triggers = map[string]runtime.EvaluationTrigger{
	"job-register":           runtime.TriggerRegister,
	"job-deregister":         runtime.TriggerDeregister,
	"alloc-failure":          runtime.TriggerAllocationLost,
	"alloc-stop":             runtime.TriggerAllocationLost,
	"max-disconnect-timeout": runtime.TriggerAllocationLost,
	"queued-allocs":          runtime.TriggerNoRoom,
	"max-plan-attempts":      runtime.TriggerNoRoom,
	"failed-follow-up":       runtime.TriggerFailedFollowUp,
	"node-update":            runtime.TriggerNodeChanged,
	"node-drain":             runtime.TriggerNodeChanged,
	"reconnect":              runtime.TriggerNodeChanged,
	"preemption":             runtime.TriggerPreempted,
}

var statuses = map[string]runtime.EvaluationStatus{
	api.EvalStatusBlocked:   runtime.EvaluationBlocked,
	api.EvalStatusPending:   runtime.EvaluationPending,
	api.EvalStatusComplete:  runtime.EvaluationComplete,
	api.EvalStatusFailed:    runtime.EvaluationFailed,
	api.EvalStatusCancelled: runtime.EvaluationCancelled,
}

func tellAllocation(a *api.AllocationListStub, e *entry, evaluation runtime.EvaluationID) runtime.Allocation {
	told := runtime.Allocation{
		ID: runtime.AllocationID(sortable(a.CreateIndex, a.ID)), RunnerID: e.id, EnvironmentID: e.runner.Environment.ID, EvaluationID: evaluation,
		Resources: e.runner.Environment.Resources, Desired: runtime.DesiredRun, Status: runtime.AllocationPending, CreatedAt: time.Unix(0, a.CreateTime),
	}
	if a.DesiredStatus != api.AllocDesiredStatusRun {
		told.Desired = runtime.DesiredStop
	}
	if e.ready != nil && e.ready.allocation == a.ID {
		told.RunningAt = e.ready.at
	}
	switch a.ClientStatus {
	case api.AllocClientStatusRunning:
		if !told.RunningAt.IsZero() {
			told.Status = runtime.AllocationRunning
		}
	case api.AllocClientStatusComplete:
		told.Status = runtime.AllocationComplete
	case api.AllocClientStatusFailed:
		told.Status, told.Message = runtime.AllocationFailed, taskEnd(a)
	case api.AllocClientStatusLost:
		told.Status, told.Message = runtime.AllocationLost, "its node was lost"
	case api.AllocClientStatusUnknown:
		told.Status, told.Message = runtime.AllocationLost, "its node is disconnected"
	}
	if allEnded([]*api.AllocationListStub{a}) {
		told.EndedAt = time.Unix(0, a.ModifyTime)
	}
	return told
}
