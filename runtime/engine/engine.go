// Package engine is the one service: it composes pools, executions, their
// output and the store over a Cluster. The API's doors and the commands call
// it and nothing below it.
//
// Methods are safe for concurrent use, check their input, and return errors of
// type runtime.Error. They may be called once Restored is closed and until Run
// returns.
package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/store"
)

// Config are an engine's settings.
type Config struct {
	Dir    string // output logs live below it
	Logger *zap.Logger
}

// An Engine serves environments, runners and executions.
type Engine struct {
	cluster  runtime.Cluster
	store    *store.Store
	dir      string
	logger   *zap.Logger
	jobs     chan func(context.Context) // what Run is to run beside itself
	restored chan struct{}
	stopped  chan struct{}

	listings      chan struct{} // holds a token for each list of files under way
	changing      chan struct{} // holds a token while an environment is changed
	outputFailing atomic.Bool   // the last write of output failed

	runners sync.Map // runtime.RunnerID → runtime.Runner, as the pools last said

	mu           sync.Mutex // guards what follows; never held across I/O
	environments map[runtime.EnvironmentID]runtime.Environment
	pools        map[runtime.EnvironmentID]*pool.Pool // also of deleted environments that still have claimed runners
	poolsChanged chan struct{}                        // closed and replaced when a pool comes
	sessions     map[runtime.ExecutionID]*session
	sessionsIn   map[runtime.RunnerID][]*session
	claims       map[string]*keyedClaim // by key, while the runner lives
	flights      map[string]*flight     // by key, while they are under way
	health       map[string]ComponentHealth
}

// New returns an engine over a cluster and a store, which stay the caller's to
// close, after Run has returned.
func New(cluster runtime.Cluster, store *store.Store, config Config) *Engine {
	return &Engine{
		cluster:      cluster,
		store:        store,
		dir:          config.Dir,
		logger:       config.Logger,
		changing:     make(chan struct{}, 1),
		listings:     make(chan struct{}, maxListings),
		jobs:         make(chan func(context.Context)),
		restored:     make(chan struct{}),
		stopped:      make(chan struct{}),
		environments: map[runtime.EnvironmentID]runtime.Environment{},
		pools:        map[runtime.EnvironmentID]*pool.Pool{},
		poolsChanged: make(chan struct{}),
		sessions:     map[runtime.ExecutionID]*session{},
		sessionsIn:   map[runtime.RunnerID][]*session{},
		claims:       map[string]*keyedClaim{},
		flights:      map[string]*flight{},
		health:       map[string]ComponentHealth{},
	}
}

// Restored is closed once what was stored is back, and calls are welcome.
func (e *Engine) Restored() <-chan struct{} { return e.restored }

// Run restores what is stored, and serves until ctx ends. It returns ctx's
// cause, or why nothing could be restored, once all it started has ended.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer close(e.stopped)
	defer cancel()

	failed := make(chan error, 1)
	group.Go(func() {
		if err := e.restore(ctx); err != nil {
			failed <- err
		}
	})
	group.Go(func() { e.watch(ctx) })
	for {
		select {
		case job := <-e.jobs:
			group.Go(func() { job(ctx) })
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// background has Run run job beside itself, with a context that ends when Run
// is to end.
func (e *Engine) background(job func(context.Context)) error {
	select {
	case e.jobs <- job:
		return nil
	case <-e.stopped:
		return errStopping()
	}
}

func errStopping() error {
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")
}

// restore brings back environments and pools, and ends the executions that a
// dead server left.
func (e *Engine) restore(ctx context.Context) error {
	environments, err := e.cluster.Environments(ctx)
	if err != nil {
		return fmt.Errorf("restore environments: %w", err)
	}
	runners, err := e.cluster.Runners(ctx, "")
	if err != nil {
		return fmt.Errorf("restore runners: %w", err)
	}
	if err := e.endLost(ctx); err != nil {
		return fmt.Errorf("restore executions: %w", err)
	}
	e.mu.Lock()
	known := map[runtime.EnvironmentID][]runtime.Runner{}
	for _, r := range runners {
		known[r.Environment.ID] = append(known[r.Environment.ID], r)
		e.runners.Store(r.ID, r)
		if r.Claim.Key != "" {
			e.claims[r.Claim.Key] = finishedClaim(r)
		}
	}
	for _, env := range environments {
		e.environments[env.ID] = env
	}
	e.mu.Unlock()
	for _, env := range environments {
		if err := e.openPool(ctx, env, slices.Concat([]runtime.Runner{}, known[env.ID]), false); err != nil {
			return err
		}
		delete(known, env.ID)
	}
	for _, orphans := range known { // their environment was deleted
		if err := e.openPool(ctx, orphans[0].Environment, orphans, true); err != nil {
			return err
		}
	}
	close(e.restored)
	return nil
}

// endLost ends executions whose server died: nobody saw how they ended. What
// they printed until then stays.
func (e *Engine) endLost(ctx context.Context) error {
	unfinished, err := e.store.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, x := range unfinished {
		log, err := output.Recover(e.logPath(x.ID))
		if err != nil {
			e.logger.Warn("output could not be recovered", zap.String("execution", string(x.ID)), zap.Error(err))
			log = output.New(e.logPath(x.ID))
		}
		x = lost(x, log.Next(), time.Now())
		if err := errors.Join(log.End(), e.store.PutExecution(ctx, x)); err != nil {
			return err
		}
	}
	return nil
}

// watch turns the cluster's hints into the pools'.
func (e *Engine) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.cluster.Watch(ctx, func(id runtime.EnvironmentID) {
			e.mu.Lock()
			defer e.mu.Unlock()
			for env, p := range e.pools {
				if id == "" || id == env {
					p.Hint()
				}
			}
		})
		if ctx.Err() != nil {
			return
		}
		e.setHealth("cluster", HealthDegraded, "its events don't come: "+err.Error())
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// openPool makes and runs the pool of env, unless there is one. Known are its
// runners; nil: they have to be listed.
func (e *Engine) openPool(ctx context.Context, env runtime.Environment, known []runtime.Runner, deleted bool) error {
	e.mu.Lock()
	if p := e.pools[env.ID]; p != nil && !p.Ended() {
		e.mu.Unlock()
		return nil
	}
	p := pool.New(env, known, pool.Options{Cluster: e.cluster, Logger: e.logger, Observe: e.observe, Ending: e.ending})
	e.pools[env.ID] = p
	close(e.poolsChanged)
	e.poolsChanged = make(chan struct{})
	e.mu.Unlock()
	err := e.background(func(ctx context.Context) {
		_ = p.Run(ctx) // ctx's end, or the end of a deleted environment
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.pools[env.ID] == p {
			delete(e.pools, env.ID)
		}
	})
	if err == nil && deleted {
		err = p.Delete(ctx, false)
	}
	return err
}

// observe takes in a runner's new state. A pool's owner calls it: it must not
// block.
func (e *Engine) observe(r runtime.Runner) {
	if r.State == runtime.RunnerGone {
		e.runners.Delete(r.ID)
	} else {
		e.runners.Store(r.ID, r)
	}
	if r.State.Before(runtime.RunnerStopping) {
		return
	}
	for _, s := range e.sessionsOf(r.ID) {
		s.runnerGone(r)
	}
}

func (e *Engine) logPath(id runtime.ExecutionID) string {
	// By the last two digits, which are random: no directory grows too large.
	return filepath.Join(e.dir, "output", string(id[max(0, len(id)-2):]), string(id))
}
