// Package engine composes what clients use: pools, executions, output and the store over a cluster. An
// [Engine] has one service for each noun. Each method of a service authorises its caller, acts, and
// records what it changed, in one place; see [audit.Do] and [audit.Authorizer.Make]. The caller is in the
// context (see package access). The API and all compatible APIs call only services.
//
// Methods are safe for concurrent use, check their input, and return errors of type runtime.Error.
// Call them after Restored is closed and before Run returns.
package engine

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/environments"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/executions"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/logdir"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/syncs"
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
	Keep      time.Duration  // how long finished executions and their output are kept; 0 means forever
	Grace     time.Duration  // how long the subscriber of a ticket may be disconnected; 0 means 30 s
	KeepBytes int64          // limit for all output and all records of finished executions; 0 means none

	Memory *quota.Memory                 // for what is kept for callers; nil means no limit
	Quotas *quota.Ledger                 // usage and quotas of tenants; nil means usage is counted without limits
	Weight func(id runtime.TenantID) int // turns of a tenant's waiting claims; nil means one for each tenant

	// OnLeader is called once this server leads and before it serves. It reads again what another
	// server may have changed. nil means that there is nothing to read.
	OnLeader func(ctx context.Context) error

	// Attacks returns the record of the last attack run on this machine, for Health, or nil if there
	// was none. nil means unknown.
	Attacks func() (*health.AttackRun, error)

	Callers *identity.Registry // has the tokens and tenants; with nil, environments may name any tenant
	Audit   *audit.Log         // records what callers change; with nil, nothing is recorded
}

// Services are the part of an Engine that APIs hold. Only its own methods check no caller: they reach no
// object.
type Services struct {
	Environments *environments.Service
	Runners      *Runners
	Tickets      *Tickets
	Files        *Files
	Executions   *Executions
	Batches      *Batches
	Callers      *Callers
	Server       *Server

	jobs   jobs
	counts *activity.Counts
}

// An Engine has the services, and what they share. Make it with New. Methods of the Engine itself check
// no caller; they are for the server.
type Engine struct {
	Services

	auth           *audit.Authorizer
	log            *audit.Log
	callerRegistry *identity.Registry
	cluster        runtime.Cluster
	store          *store.Store
	logger         *zap.Logger
	boot           timing.Boot
	clock          timing.Clock
	keep           time.Duration                   // of finished executions; 0 means forever
	onLeader       func(ctx context.Context) error // Config.OnLeader
	logs           *logdir.Dir
	restored       restoration
	memory         *quota.Memory

	failures activity.Failures
	alerts   activity.Alerts
	health   *activity.Monitor
	agents   *usage.Agents

	environmentRegistry *environments.Registry
	rooms               *pool.RoomMaker
	runnerIndex         runnerIndex
	fileAccess          *files.Access
	usage               *usage.Tracker
	inputs              *usage.Inputs
	claims              *syncs.Group[runtime.RunnerID] // results by key, kept while their runners live
	sticky              stickyClaims
	ticketRegistry      *ticket.Registry
	host                session.Host // of all sessions
	sessions            *executions.Registry
	runs                *syncs.Group[runtime.Execution] // runs in progress, by key
	batchHost           batch.Host
	batchTable          *batchTable
	leases              *leases
}

// New returns an engine over a cluster and a store. The caller closes both after Run has returned.
func New(cluster runtime.Cluster, store *store.Store, config Config) *Engine {
	e := &Engine{
		auth: audit.NewAuthorizer(config.Audit), log: config.Audit, callerRegistry: config.Callers,
		cluster: cluster, store: store, logger: config.Logger, boot: config.Boot, clock: timing.NewClock(), keep: config.Keep, onLeader: config.OnLeader, memory: config.Memory,
		Services:    Services{jobs: jobs{make(chan func(context.Context)), make(chan struct{})}, counts: activity.NewCounts()},
		restored:    restoration{done: make(chan struct{})},
		runnerIndex: runnerIndex{feed: events.NewRunnerFeed()},
		claims:      syncs.NewCachingGroup[runtime.RunnerID](),
		sticky:      stickyClaims{calls: map[string]*pendingClaim{}},
		runs:        syncs.NewGroup[runtime.Execution](),
		batchTable:  newBatchTable(),
		leases:      newLeases(),
	}
	e.agents = usage.NewAgents(func(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
		return cluster.Dial(runtime.Spare(ctx), id)
	}, e.jobs.Add)
	e.usage = usage.NewTracker(usage.Config{Quotas: config.Quotas, Memory: config.Memory, Weight: config.Weight, Runner: e.runnerIndex.get})
	e.environmentRegistry = environments.NewRegistry(environments.Config{
		Cluster: cluster, Logger: config.Logger, Usage: e.usage, Memory: config.Memory, Counts: e.counts, Alerts: &e.alerts, Jobs: e.jobs, NewPool: e.newPool(config.Alert),
	})
	e.rooms = pool.NewRoomMaker(cluster, func() []*pool.Pool { all, _ := e.environmentRegistry.Pools(); return all })
	e.fileAccess = files.New(reach{e}, config.Memory)
	e.ticketRegistry = ticket.New(ticket.Options{Spawn: e.jobs.Add, Release: e.releaseUnused, Memory: config.Memory, Grace: config.Grace})
	e.logs = logdir.New(filepath.Join(config.Dir, "output"), logdir.Options{
		Clock: e.clock, Store: store, Logger: config.Logger, Keep: config.Keep, KeepBytes: config.KeepBytes, Failing: func(err error) { e.health.RetentionFails(err) },
	})
	e.inputs = usage.NewInputs(e.logs, config.KeepBytes)
	e.sessions = executions.NewRegistry(executions.Config{Store: store, Logs: e.logs, Agents: e.agents})
	sources := activity.Sources{
		Cluster: cluster.Status, Store: store.Check, Logs: e.logs, Skipped: e.skipped, Pools: e.environmentRegistry.Health, Attacks: config.Attacks,
	}
	if config.Audit != nil {
		sources.Audit = config.Audit.Problem
	}
	e.health = activity.NewMonitor(sources)
	e.host = session.Host{
		Cluster: cluster, Store: store, Disk: e.logs, Quota: e.logs.Quota(), Logger: config.Logger, Boot: config.Boot,
		Began: e.counts.Starting.Add, Ended: e.ended,
	}
	e.batchHost = batch.Host{Begin: e.beginCase, Await: e.awaitCase, Finish: store.FinishBatch, Ended: e.batchEnded, Logger: config.Logger}
	e.serve()
	return e
}

// serve makes the services.
func (e *Engine) serve() {
	e.Environments = environments.NewService(e.auth, e.environmentRegistry, func(id runtime.TenantID) bool {
		if e.callerRegistry == nil {
			return true
		}
		_, exists := e.callerRegistry.Tenant(id)
		return exists
	})
	e.Runners, e.Tickets, e.Files, e.Batches, e.Callers, e.Server = &Runners{e}, &Tickets{e}, &Files{e}, &Batches{e}, &Callers{e}, &Server{e}
	e.Executions = &Executions{executions.NewService(e.auth, e.sessions), e}
}

// FailureRecorder returns a function that records failed authentications; see
// [audit.Authorizer.FailureRecorder].
func (e *Engine) FailureRecorder() func(address netip.Addr, err error) {
	return e.auth.FailureRecorder(e.restored.done)
}

// CountSubscription counts a subscription until left is called.
func (s *Services) CountSubscription(kind activity.WatchKind) (left func()) {
	return s.counts.Subscription(kind)
}

// Stats returns the current counters. It doesn't block.
func (e *Engine) Stats() activity.Stats {
	s := activity.Stats{Pools: e.environmentRegistry.Stats(), Skipped: len(e.skipped()), Unfinished: e.sessions.Len()}
	e.counts.Read(&s)
	logs := e.logs.Figures()
	s.Collected, s.Output, s.OutputLost, s.Kept, s.KeepLimit = logs.Collected, logs.Written, logs.Lost, logs.Kept, logs.Limit
	return s
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
	group.Go(func() { e.environmentRegistry.Sample(ctx) })
	group.Go(func() { e.rooms.Run(ctx) })
	group.Go(func() { e.environmentRegistry.Follow(ctx, e.restored.done) })
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

// Add runs job in a goroutine that Run waits for. The job's context ends when Run has to end. After
// Run has ended, Add returns CLUSTER_UNAVAILABLE.
func (j jobs) Add(job func(context.Context)) error {
	select {
	case j.begin <- job:
		return nil
	case <-j.stopped:
		return runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")
	}
}

// Go runs f in a goroutine that Run waits for. f's context ends with ctx or when Run has to end.
func (j jobs) Go(ctx context.Context, f func(context.Context)) error {
	return j.Add(func(running context.Context) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(running, func() { cancel(context.Cause(running)) })()
		f(ctx)
	})
}

// Go runs f in a goroutine that Run waits for. f's context ends with ctx or when Run has to end.
func (s *Services) Go(ctx context.Context, f func(context.Context)) error { return s.jobs.Go(ctx, f) }

// watch passes the cluster's hints on to the pools.
func (e *Engine) watch(ctx context.Context) {
	_ = e.cluster.Watch(ctx, func(id runtime.EnvironmentID) { // until ctx ends
		if id != "" {
			if p := e.environmentRegistry.Pool(id); p != nil {
				p.Hint()
			}
			return
		}
		all, _ := e.environmentRegistry.Pools()
		for _, p := range all {
			p.Hint()
		}
	})
}

func (e *Engine) newPool(alert pool.AlertRule) func(runtime.Environment, []runtime.Runner, map[runtime.RunnerID]int) *pool.Pool {
	return func(env runtime.Environment, known []runtime.Runner, busy map[runtime.RunnerID]int) *pool.Pool {
		return pool.New(env, known, pool.Options{
			Cluster: leaderCluster{e.cluster, e.store}, Logger: e.logger, Alert: alert, Boot: e.boot, Busy: busy, Lacks: e.rooms.Lacks, Observe: e.observe, Ending: e.ending,
			Draining: e.environmentRegistry.Draining, Alerted: e.alerts.Add, Image: e.environmentRegistry.ImageStatus,
		})
	}
}

// A leaderCluster removes runners only while this server leads. A server that was suspended may
// still consider a runner idle that another server has handed out.
type leaderCluster struct {
	runtime.Cluster
	store *store.Store
}

// Remove implements runtime.Cluster.
func (c leaderCluster) Remove(ctx context.Context, id runtime.RunnerID) error {
	if err := c.store.Leads(ctx); err != nil {
		return err
	}
	return c.Cluster.Remove(ctx, id)
}

// observe handles a runner's new state. The pool's loop calls it, so it must not block.
func (e *Engine) observe(r runtime.Runner) {
	e.runnerIndex.change(r)
	if r.State.Before(runtime.RunnerStopping) {
		return
	}
	e.usage.RunnerGone(r.ID)
	for _, s := range e.sessions.In(r.ID) {
		s.RunnerGone(r.GoneReason)
	}
}
