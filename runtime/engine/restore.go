package engine

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/usage"
)

// restore restores environments, pools and executions. It waits for no runner: executions get their
// last known state, and their sessions contact their agents in the background. Health reports
// what could not be restored.
func (e *Engine) restore(ctx context.Context) error {
	environments, err := e.cluster.Environments(ctx)
	if err != nil {
		return fmt.Errorf("restore environments: %w", err)
	}
	// The cluster is this server's now. From here on, no other server begins anything.
	if err := e.store.Lead(ctx); err != nil {
		return fmt.Errorf("restore executions: %w", err)
	}
	if e.onLeader != nil {
		if err := e.onLeader(ctx); err != nil {
			return err
		}
	}
	if err := e.usage.Quotas.Load(ctx, e.store); err != nil {
		return fmt.Errorf("restore what tenants used today: %w", err)
	}
	runners, err := e.cluster.Runners(ctx, "")
	if err != nil {
		return fmt.Errorf("restore runners: %w", err)
	}
	unfinished, err := e.store.Unfinished(ctx)
	if err != nil {
		return fmt.Errorf("restore executions: %w", err)
	}
	coordinators, err := e.recallBatches(ctx)
	if err != nil {
		return fmt.Errorf("restore batches: %w", err)
	}
	if err := e.logs.PutBack(ctx); err != nil {
		e.notRestored("orphaned output: %v", err)
	}
	if err := e.logs.Count(ctx); err != nil {
		return fmt.Errorf("restore executions: %w", err)
	}

	known := map[runtime.EnvironmentID][]runtime.Runner{}
	byID := make(map[runtime.RunnerID]runtime.Runner, len(runners))
	for _, r := range runners {
		known[r.Environment.ID] = append(known[r.Environment.ID], r)
		byID[r.ID] = r
		e.runnerIndex.byID.Store(r.ID, pool.Adopted(r, e.boot))
		e.runnerIndex.recordHolder(r)
		e.usage.Adopt(r)
		if r.Claim.Key != "" {
			e.claims.Put(r.Claim.Key, r.Claim.Input, r.ID)
		}
	}
	e.environmentRegistry.Restore(environments)

	// Sessions come before pools: pools report the ends of runners to them, and must know from the
	// start which runners are in use.
	sessions := e.resumeAll(ctx, unfinished, byID)
	busy := map[runtime.RunnerID]int{}
	for _, s := range sessions {
		if _, there := byID[s.Runner()]; there {
			busy[s.Runner()]++
		}
	}
	// A batch uses its runner between its executions too.
	for _, c := range coordinators {
		if id := c.Batch().RunnerID; byID[id].ID != "" {
			busy[id]++
		}
	}
	if err := e.environmentRegistry.RestorePools(ctx, known, busy); err != nil {
		return err
	}
	// Now that their pools exist, the sessions and coordinators run.
	for _, s := range sessions {
		if err := e.resume(s, e.environmentRegistry.Pool(byID[s.Runner()].Environment.ID)); err != nil {
			return err
		}
	}
	for _, c := range coordinators {
		if err := e.jobs.Add(c.Run); err != nil {
			return err
		}
	}
	// Calls are allowed from here on. They don't wait for the cleanup below.
	close(e.restored.done)
	err = e.jobs.Add(func(ctx context.Context) {
		if err := e.logs.MoveOrphans(ctx); err != nil {
			e.notRestored("%v", err)
		}
	})
	if err != nil {
		return err
	}
	return e.jobs.Add(func(ctx context.Context) { e.releaseLeft(ctx, runners, busy) })
}

func (e *Engine) resumeAll(ctx context.Context, unfinished []store.Unfinished, runners map[runtime.RunnerID]runtime.Runner) []*session.Session {
	sessions := make([]*session.Session, len(unfinished))
	var group errgroup.Group
	group.SetLimit(goruntime.GOMAXPROCS(0))
	for i, u := range unfinished {
		group.Go(func() error { // concurrent, because it reads the whole log
			var runner *runtime.Runner
			if r, ok := runners[u.Execution.RunnerID]; ok {
				runner = &r
			}
			sessions[i] = e.host.Resume(ctx, u, runner, e.logs.Location(u.Execution.ID), e.notRestored)
			return nil
		})
	}
	_ = group.Wait() // no goroutine returns an error
	for _, s := range sessions {
		e.sessions.Add(s)
		x := s.Execution()
		e.leaseExecution(x)
		e.inputs.Adopt(x.Tenant, usage.InputOf(x, s.Stored()))
		if x.Batch == nil {
			s.Keep(e.memory.Adopt(x.Tenant, bytesOfExecution(x)+s.Bytes()))
			e.usage.Quotas.Of(x.Tenant).Adopt(quota.Executions, 1)
		}
	}
	e.counts.Resumed.Add(int64(len(sessions)))
	return sessions
}

// resume runs a session, and feeds its stdin with what an earlier server had not written yet. p is the
// pool of its runner; nil means the runner doesn't exist.
func (e *Engine) resume(s *session.Session, p *pool.Pool) error {
	if p == nil {
		return e.jobs.Add(func(ctx context.Context) { s.Run(ctx, nil) })
	}
	if err := e.jobs.Add(func(ctx context.Context) { s.Run(ctx, p) }); err != nil {
		return err
	}
	return e.feedInput(s)
}

// releaseLeft releases the runners that should have been released with their execution, if the server
// was killed between its end and the release.
func (e *Engine) releaseLeft(ctx context.Context, runners []runtime.Runner, busy map[runtime.RunnerID]int) {
	for _, r := range runners {
		if r.State != runtime.RunnerClaimed || busy[r.ID] > 0 {
			continue
		}
		released, err := e.store.Released(ctx, r.ID)
		if err == nil && released {
			_, err = e.release(ctx, r.ID)
		}
		if err != nil {
			e.logger.Warn("runner was not released; its inactivity timeout will end it", zap.String("runner", string(r.ID)), zap.Error(err))
		}
	}
}

type restoration struct {
	done chan struct{} // closed when the restore is complete

	mu      sync.Mutex // guards skipped
	skipped []string   // what could not be restored, and why
}

// notRestored records and logs something that could not be restored.
func (e *Engine) notRestored(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	e.logger.Warn("could not be restored; skipped", zap.String("what", text))
	e.restored.mu.Lock()
	defer e.restored.mu.Unlock()
	e.restored.skipped = append(e.restored.skipped, text)
}

// skipped returns what could not be restored since the start.
func (e *Engine) skipped() []string {
	e.restored.mu.Lock()
	defer e.restored.mu.Unlock()
	return slices.Concat(e.restored.skipped, e.store.Unreadable())
}
