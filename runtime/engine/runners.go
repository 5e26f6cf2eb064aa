package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/request"
)

// runnerIndex has the runners that aren't gone, as last reported by the pools.
type runnerIndex struct {
	byID     sync.Map // runtime.RunnerID → runtime.Runner
	byHolder sync.Map // request.HolderKey → runtime.RunnerID, of those that are CLAIMED
	feed     *events.RunnerFeed
}

func (all *runnerIndex) change(r runtime.Runner) {
	old, known := all.get(r.ID)
	if r.State == runtime.RunnerGone {
		all.byID.Delete(r.ID)
	} else {
		all.byID.Store(r.ID, r)
	}
	all.recordHolder(r)
	if old.State != r.State || old.Message != r.Message {
		all.feed.Report(r, !known)
	}
}

func (all *runnerIndex) get(id runtime.RunnerID) (runtime.Runner, bool) {
	value, ok := all.byID.Load(id)
	if !ok {
		return runtime.Runner{}, false
	}
	return value.(runtime.Runner), true
}

// list returns the runners that a filter selects, ordered by id, which is by age.
func (all *runnerIndex) list(filter request.Runners) []runtime.Runner {
	var found []runtime.Runner
	for _, value := range all.byID.Range {
		if r := value.(runtime.Runner); filter.Matches(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b runtime.Runner) int {
		if filter.NewestFirst {
			a, b = b, a
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return found
}

// recordHolder records which runner a holder has. If a killed server left two, the later claim counts.
func (all *runnerIndex) recordHolder(r runtime.Runner) {
	if r.Claim.Holder == "" {
		return
	}
	key := request.HolderKey(r.Environment.ID, r.Claim)
	if r.State != runtime.RunnerClaimed {
		all.byHolder.CompareAndDelete(key, r.ID)
		return
	}
	if other, ok := all.heldBy(key); !ok || !other.Claim.ClaimedAt.After(r.Claim.ClaimedAt) {
		all.byHolder.Store(key, r.ID)
	}
}

func (all *runnerIndex) heldBy(key string) (runtime.Runner, bool) {
	id, ok := all.byHolder.Load(key)
	if !ok {
		return runtime.Runner{}, false
	}
	return all.get(id.(runtime.RunnerID))
}

// Runners serves runners and claims to callers. A runner that a caller doesn't see doesn't exist for
// it: the error is RUNNER_GONE.
type Runners struct{ e *Engine }

func (e *Engine) runner(id runtime.RunnerID) audit.Object {
	return audit.Object{Kind: audit.OfRunner, ID: string(id), Find: func(p access.Principal) (runtime.TenantID, error) {
		r, ok := e.runnerIndex.get(id)
		if !ok {
			return audit.WholeServer, runtime.Gone(id)
		}
		return audit.Seen(r.Tenant(), p.SeesRunner(r), runtime.Gone(id))
	}}
}

// Get returns a runner, and whether it exists for the caller.
func (s *Runners) Get(ctx context.Context, id runtime.RunnerID) (runtime.Runner, bool, error) {
	p, err := s.e.auth.Allow(ctx, "runner")
	if err != nil {
		return runtime.Runner{}, false, err
	}
	r, ok := s.e.runnerIndex.get(id)
	if !ok || !p.SeesRunner(r) {
		return runtime.Runner{}, false, nil
	}
	return r, true, nil
}

// List returns the runners that aren't gone and that the caller sees, ordered by id, which is by age:
// oldest first, unless the filter reverses it.
func (s *Runners) List(ctx context.Context, filter request.Runners) ([]runtime.Runner, error) {
	p, err := s.e.auth.Allow(ctx, "runners")
	if err != nil {
		return nil, err
	}
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	filter.Sees = p.SeesRunner
	return s.e.runnerIndex.list(filter), nil
}

// Usage returns what is used in a runner. It returns nil if the runner isn't CLAIMED, or if its agent
// doesn't answer within a second. See [usage.Agents] for the age of the data. It checks nothing: r must
// come from a call that did.
func (s *Runners) Usage(ctx context.Context, r runtime.Runner) *runtime.RunnerUsage {
	if r.State != runtime.RunnerClaimed {
		return nil
	}
	used, at := s.e.agents.Usage(ctx, r.ID, r.Tenant())
	if at.IsZero() {
		return nil
	}
	resources := r.Environment.Resources
	return &runtime.RunnerUsage{
		CPU: used.Runner.User + used.Runner.System, At: at,
		Memory: used.Runner.Memory, MemoryLimit: int64(resources.MemoryMiB) << 20,
		Processes: used.Runner.Processes, ProcessLimit: resources.Processes,
	}
}

// Watch sends each runner that the caller sees, then each change of a state, with GONE as a runner's
// last. It watches all runners, or those of one environment. A slow receiver gets only the latest state
// of each runner, and nothing about runners that came and went meanwhile. So pending events are bounded
// by the number of runners. No state is sent twice in a row. The channel is closed when ctx ends; with
// an environment also after its deletion, following its last runner's GONE.
func (s *Runners) Watch(ctx context.Context, id runtime.EnvironmentID) (<-chan events.RunnerEvent, error) {
	p, err := s.e.auth.Allow(ctx, "runnerEvents")
	if err != nil {
		return nil, err
	}
	watched, err := s.e.environmentRegistry.Watched(p, id)
	if err != nil {
		return nil, err
	}
	var ended <-chan struct{} // of all environments: never
	if watched != nil {
		ended = watched.Closed()
	}
	w := s.e.runnerIndex.feed.Watch(id, p.SeesRunner, func(put func(runtime.Runner)) {
		for _, r := range s.e.runnerIndex.list(request.Runners{EnvironmentID: id}) {
			put(r)
		}
	})
	out := make(chan events.RunnerEvent)
	err = s.e.jobs.Go(ctx, func(ctx context.Context) {
		defer close(out)
		defer s.e.counts.Subscription(activity.WatchRunners)()
		defer s.e.runnerIndex.feed.Remove(w)
		w.Send(ctx, ended, out)
	})
	if err != nil {
		s.e.runnerIndex.feed.Remove(w)
	}
	return out, err
}

// TaskEvents returns the events of a runner that the caller sees, oldest first, and none for another
// one. Only callers for all tenants get those of removed runners.
func (s *Runners) TaskEvents(ctx context.Context, id runtime.RunnerID) ([]runtime.TaskEvent, error) {
	p, err := s.e.auth.Allow(ctx, "taskEvents")
	if err != nil {
		return nil, err
	}
	if r, ok := s.e.runnerIndex.get(id); ok && !p.SeesRunner(r) || !ok && !p.AllTenants {
		return []runtime.TaskEvent{}, nil
	}
	return s.e.cluster.TaskEvents(ctx, id)
}

// Renew renews a claim. It returns RUNNER_GONE if the runner is gone or being removed, and CONFLICT
// if it isn't claimed.
func (s *Runners) Renew(ctx context.Context, id runtime.RunnerID) (runtime.Runner, error) {
	return audit.Do(ctx, s.e.auth, "renewRunner", s.e.runner(id), func() (runtime.Runner, error) {
		p, err := s.e.poolOf(id)
		if err != nil {
			return runtime.Runner{}, err
		}
		return p.Renew(ctx, id)
	})
}

// Release ends a claim and removes its runner. It returns false if the runner was gone already.
func (s *Runners) Release(ctx context.Context, id runtime.RunnerID) (bool, error) {
	acted, gone := false, false
	released, err := audit.Do(ctx, s.e.auth, "releaseRunner", s.e.runner(id), func() (bool, error) {
		acted = true
		released, err := s.e.release(ctx, id)
		if gone = err == nil && !released; gone {
			err = runtime.Gone(id)
		}
		return released, err
	})
	if gone || !acted && runtime.CodeOf(err) == runtime.CodeRunnerGone {
		return false, nil
	}
	return released, err
}

// release is Runners.Release for the server itself.
func (e *Engine) release(ctx context.Context, id runtime.RunnerID) (bool, error) {
	p, err := e.poolOf(id)
	if err != nil {
		return false, nil
	}
	return p.Release(ctx, id)
}

// poolOf returns the pool of a runner, or RUNNER_GONE.
func (e *Engine) poolOf(id runtime.RunnerID) (*pool.Pool, error) {
	if r, ok := e.runnerIndex.get(id); ok {
		if p := e.environmentRegistry.Pool(r.Environment.ID); p != nil {
			return p, nil
		}
	}
	return nil, runtime.Gone(id)
}
