// Package engine is the service behind all doors: it composes pools, executions, output and the
// store over a Cluster. Doors call only this package and the values that it returns.
//
// Methods are safe for concurrent use, check their input, and return errors of type runtime.Error.
// Call them after Restored is closed and before Run returns.
package engine

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/attacks"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/lines"
	"github.com/rockpool/rockpool/runtime/logdir"
	"github.com/rockpool/rockpool/runtime/once"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/runnerfeed"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/ticket"
	"github.com/rockpool/rockpool/runtime/timing"
	"github.com/rockpool/rockpool/runtime/usage"
)

// Config are an engine's settings.
type Config struct {
	Dir       string // parent directory of the output logs
	Logger    *zap.Logger
	Boot      timing.Boot    // see pool.Options and session.Host
	Alert     pool.AlertRule // when a pool with too few idle runners raises an alert
	Keep      time.Duration  // how long finished executions and their output are kept; 0: forever
	Grace     time.Duration  // how long the subscriber of a ticket may be disconnected; 0: 30 s
	KeepBytes int64          // limit for all output and all records of finished executions; 0: none

	Memory *quota.Memory                 // for what is kept for callers; nil: without a limit
	Quotas *quota.Ledger                 // usage and quotas of tenants; nil: usage is counted without limits
	Weight func(id runtime.TenantID) int // turns of a tenant's waiting claims; nil: 1 for each tenant

	// Led is called once this server leads and before it serves. It reads again what another
	// server may have changed. nil: nothing to read.
	Led func(ctx context.Context) error

	// Attacks returns the record of the last attack run on this machine, for Health, or nil if there
	// was none. nil: unknown.
	Attacks func() (*attacks.Record, error)

	// Audit returns the audit log's fault, for Health, or nil if it works. nil: there is no audit
	// log.
	Audit func() error
}

// An Engine serves environments, runners and executions. Make it with New.
type Engine struct {
	*files.Access

	cluster  runtime.Cluster
	store    *store.Store
	logger   *zap.Logger
	boot     timing.Boot
	clock    timing.Clock
	alert    pool.AlertRule
	logs     *logdir.Dir
	lines    *lines.Book
	jobs     jobs
	restored restoration
	counts   *counts
	failures activity.Failures
	alerts   activity.Alerts
	led      func(ctx context.Context) error // Config.Led
	keep     time.Duration                   // of finished executions; 0: forever
	health   healthBook

	memory   *quota.Memory
	lacking  chan struct{} // capacity 1: a hint that waiting claims lack room
	holdings *holdings
	catalog  *catalog
	runners  runners
	host     session.Host // of all sessions
	sessions *sessionTable
	batches  *batches
	leases   *leases
	inputs   *inputCharge
	tickets  *ticket.Book
	claims   *once.Group[runtime.RunnerID] // results by key, kept while their runners live
	holders  holders
	runs     *once.Group[runtime.Execution] // runs in progress, by key
	agents   *usage.Agents
}

// New returns an engine over a cluster and a store. The caller closes both after Run has returned.
func New(cluster runtime.Cluster, store *store.Store, config Config) *Engine {
	e := &Engine{
		cluster:  cluster,
		store:    store,
		logger:   config.Logger,
		boot:     config.Boot,
		clock:    timing.NewClock(),
		alert:    config.Alert,
		jobs:     jobs{make(chan func(context.Context)), make(chan struct{})},
		restored: restoration{done: make(chan struct{})},
		counts:   newCounts(),
		led:      config.Led,
		keep:     config.Keep,
		health:   healthBook{readAttacks: config.Attacks, auditProblem: config.Audit, parts: map[string]ComponentHealth{}},
		lines:    lines.NewBook(),
		memory:   config.Memory,
		lacking:  make(chan struct{}, 1),
		catalog:  newCatalog(),
		runners:  runners{feed: runnerfeed.New()},
		sessions: newSessionTable(),
		batches:  newBatches(),
		leases:   &leases{byID: map[string]*lease{}},
		claims:   once.NewCachingGroup[runtime.RunnerID](),
		holders:  holders{calls: map[string]*holding{}},
		runs:     once.NewGroup[runtime.Execution](),
	}
	e.agents = usage.New(func(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
		return cluster.Dial(runtime.Spare(ctx), id)
	}, e.jobs.add)
	e.holdings = newHoldings(config, e.Runner)
	e.Access = files.New(reach{e}, config.Memory)
	e.tickets = ticket.New(ticket.Options{Spawn: e.jobs.add, Release: e.releaseUnseen, Memory: config.Memory, Grace: config.Grace})
	e.logs = logdir.New(filepath.Join(config.Dir, "output"), logdir.Options{
		Clock: e.clock,
		Store: store, Logger: config.Logger, Keep: config.Keep, KeepBytes: config.KeepBytes, Failing: e.retentionFails,
	})
	e.inputs = newInputCharge(e.logs, config.KeepBytes)
	e.host = session.Host{
		Cluster: cluster, Store: store, Disk: e.logs, Quota: e.logs.Quota(), Logger: config.Logger, Boot: config.Boot,
		Began: e.counts.starting.Add, Ended: e.ended,
	}
	e.batches.host = batch.Host{Begin: e.beginCase, Await: e.awaitCase, Finish: store.FinishBatch, Ended: e.batchEnded, Logger: config.Logger}
	return e
}

// Restored returns a channel that is closed once stored state is restored and calls are allowed.
func (e *Engine) Restored() <-chan struct{} { return e.restored.done }

// Run restores stored state and serves until ctx ends. It returns ctx's cause, or the error of the
// restore, or store.ErrTaken if another server took the data. It waits for all goroutines first.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	// These run from the last to the first: end the goroutines, wait for a check of the logs' directory,
	// refuse new jobs, and wait for the goroutines.
	defer group.Wait()
	defer close(e.jobs.stopped)
	defer e.logs.Close()
	defer cancel()

	failed := make(chan error, 1)
	group.Go(func() {
		if err := e.restore(ctx); err != nil {
			failed <- err
		}
	})
	group.Go(func() { e.watch(ctx) })
	group.Go(func() {
		select {
		case <-e.restored.done:
			e.logs.Collect(ctx)
		case <-ctx.Done():
		}
	})
	group.Go(func() { e.sample(ctx) })
	group.Go(func() { e.makeRoom(ctx) })
	group.Go(func() { e.followEnvironments(ctx) })
	for {
		select {
		case job := <-e.jobs.begin:
			group.Go(func() { job(ctx) })
		case err := <-failed:
			return err
		case <-e.store.Taken():
			return store.ErrTaken
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// jobs starts goroutines that Run waits for.
type jobs struct {
	begin   chan func(context.Context) // received by Run
	stopped chan struct{}              // closed when Run returns
}

// add runs job in a goroutine that Run waits for. The job's context ends when Run has to end. After
// Run has ended, add returns CLUSTER_UNAVAILABLE.
func (j jobs) add(job func(context.Context)) error {
	select {
	case j.begin <- job:
		return nil
	case <-j.stopped:
		return errStopping()
	}
}

// Go runs f in a goroutine that Run waits for. f's context ends with ctx or when Run has to end.
func (e *Engine) Go(ctx context.Context, f func(context.Context)) error {
	return e.jobs.add(func(running context.Context) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(running, func() { cancel(context.Cause(running)) })()
		f(ctx)
	})
}

// errStopping returns the error of a job that Run no longer accepts.
func errStopping() error {
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")
}

// watch passes the cluster's hints on to the pools.
func (e *Engine) watch(ctx context.Context) {
	_ = e.cluster.Watch(ctx, func(id runtime.EnvironmentID) { // until ctx ends
		if id != "" {
			if p := e.catalog.pool(id); p != nil {
				p.Hint()
			}
			return
		}
		all, _ := e.catalog.allPools()
		for _, p := range all {
			p.Hint()
		}
	})
}

// openPool creates and runs the pool of env, unless it exists. known are its runners; nil makes the
// pool list them. busy is the number of running executions by runner.
func (e *Engine) openPool(ctx context.Context, env runtime.Environment, known []runtime.Runner, busy map[runtime.RunnerID]int, deleted bool) error {
	p := e.catalog.addPool(env.ID, func() *pool.Pool {
		e.counts.claims.LoadOrStore(env.ID, newClaimCounts())
		return pool.New(env, known, pool.Options{
			Cluster: leading{e.cluster, e.store}, Logger: e.logger, Alert: e.alert, Boot: e.boot, Busy: busy, Lacks: e.lacks, Observe: e.observe, Ending: e.ending, Draining: e.Draining, Alerted: e.alerts.Add, Image: e.imageStatus,
		})
	})
	if p == nil {
		return nil
	}
	err := e.jobs.add(func(ctx context.Context) {
		_ = p.Run(ctx) // ends with ctx, or when a deleted environment's last runner is gone
		e.catalog.removePool(env.ID, p, func() { e.counts.claims.Delete(env.ID) })
	})
	if err == nil && deleted {
		err = p.Delete(ctx, false)
	}
	return err
}

// A leading cluster removes runners only while this server leads. A server that was suspended may
// still consider a runner idle that another server has handed out.
type leading struct {
	runtime.Cluster
	store *store.Store
}

// Remove implements runtime.Cluster.
func (c leading) Remove(ctx context.Context, id runtime.RunnerID) error {
	if err := c.store.Leads(ctx); err != nil {
		return err
	}
	return c.Cluster.Remove(ctx, id)
}

// observe handles a runner's new state. The pool's owner goroutine calls it, so it must not block.
func (e *Engine) observe(r runtime.Runner) {
	e.runners.change(r)
	if r.State.Before(runtime.RunnerStopping) {
		return
	}
	e.holdings.runnerGone(r.ID)
	for _, s := range e.sessions.in(r.ID) {
		s.RunnerGone(r.GoneReason)
	}
}
