// Package local implements runtime.Cluster on this machine: a runner is a sandbox (package sandbox)
// with Rockpool's agent as its first process. A runner that has started survives the server.
//
// A runner's record is stored before anything of the runner is made. Everything that is made can be
// found and removed by the runner's id alone. The scheduler (package scheduler) decides when a runner
// gets its allocation. Then one goroutine (package runner) leads it to its end, with its
// state in the record. So the next server takes over the live runners of a server that was killed or
// stopped, and cleans up the rest. The current state of runners is in memory, is updated by the
// kernel (one pidfd per runner), and is written through to the [Store].
package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/local/network/access"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/syncs"
	"github.com/rockpool/rockpool/runtime/timing"
)

// Config configures a Cluster: its directory, its store, and what its runners may use.
type Config struct {
	host.Config // Offer and Removals are set by the Cluster

	Store      Store
	Network    *access.Config // the network that runners may use, if any
	Parallel   int            // sandboxes made concurrently; 0 means one per CPU
	Overcommit scheduler.Overcommit
	Collect    scheduler.Collect // how long ended evaluations and allocations are kept
	Keep       bool              // Run leaves runners running at its end, for the next server
	Languages  *language.Set     // their caches are made, if it isn't nil
	Images     image.Config      // the Cluster sets its Dir, Logger, Skeleton, Worker, Owners, Used and Changed
}

// A Store keeps the data that must outlive the server. Its methods are safe for concurrent use. Its
// errors are of type runtime.Error. A write that returned nil survives a SIGKILL of the server.
type Store interface {
	// Environments and Runners call each for every stored record. If a record can't be read,
	// unreadable says why, and only the id is set.
	Environments(ctx context.Context, each func(env runtime.Environment, unreadable error) error) error
	PutEnvironment(ctx context.Context, env runtime.Environment) error // the contract of runtime.Cluster.PutEnvironment
	DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID) error
	// PutFirst stores all environments if none is stored yet, else it stores none. It reports
	// whether it stored them.
	PutFirst(ctx context.Context, environments []runtime.Environment) (bool, error)

	Runners(ctx context.Context, each func(r runtime.Runner, private []byte, unreadable error) error) error
	PutRunner(ctx context.Context, r runtime.Runner, private []byte) error // insert or replace
	MarkRunner(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error
	DeleteRunner(ctx context.Context, id runtime.RunnerID) error

	// Draining returns since when the machine has been draining. The zero time means that it isn't.
	Draining(ctx context.Context) (time.Time, error)
	SetDraining(ctx context.Context, since time.Time) error
}

// Cluster is this machine as a runtime.Cluster. Its methods are safe for concurrent use. Runners
// are registered by Start at any time, but none is made before Run runs.
type Cluster struct {
	config          Config
	host            *host.Host
	scheduler       *scheduler.Scheduler
	starts          *fairqueue.Limiter // limits the runners that are made concurrently
	network         *access.Access
	changes         syncs.Watchers[runtime.EnvironmentID]
	images          *image.Cache
	counts          *health.TaskCounts
	waited          *timing.Histogram // from a runner's registration to its allocation
	tiers           []string          // descriptions, as of the server's start
	problems        *health.Problems
	cached          syncs.Hint      // an environment has changed, so that a language may need a cache
	environmentTurn fairqueue.Slots // capacity 1: held while an environment is written to the store, then to memory
	drainTurn       fairqueue.Slots // capacity 1: held while draining is started or ended

	leading sync.WaitGroup       // goroutines that lead runners
	run     func(*runner.Runner) // starts one; the caller holds mu
	leave   func(cause error)    // lets them return, and leave their runners as they are

	mu           sync.Mutex // guards the fields below; never held across I/O
	environments map[runtime.EnvironmentID]runtime.Environment
	unreadable   map[runtime.EnvironmentID]bool // stored environments that can't be read
	entries      map[runtime.RunnerID]*entry
	leaks        map[runtime.RunnerID]bool // runners of which something couldn't be removed; some are no longer in entries
	past         health.RemovedRunners
	draining     time.Time // since when; the zero time means that the machine isn't draining
	stopping     bool
	left         bool // no further goroutine may lead a runner
	restored     bool // entries holds everything that the last server left
}

var _ runtime.Cluster = (*Cluster)(nil)

// restoreWithin bounds how long New spends on removing the last server's dead runners.
const restoreWithin = time.Minute

// New opens the cluster in config.Dir and takes over the last server's live runners in the state
// that they had. If the last server hadn't begun to make a runner, it stays queued for its
// allocation. New removes what is left of the others: sandboxes, groups, directories and user ids.
// A dead runner that was claimed stays listed as GONE with STOPPED_OUTSIDE until Remove is called.
//
// A runner that can't be cleaned up doesn't stop New; Status reports it. If New can't find out
// whether a runner is alive, it returns an error and leaves that runner as it is for the next
// server. If ctx ends first, New returns its cause and leaves the rest as it is for the next
// server.
func New(ctx context.Context, config Config) (*Cluster, error) {
	if !helper.ValidParent("/" + config.CgroupParent) {
		return nil, fmt.Errorf("cgroup parent %q must be rockpool or below it", config.CgroupParent)
	}
	if config.Parallel <= 0 {
		config.Parallel = goruntime.NumCPU()
	}
	var err error
	if config.Dir, err = realDir(config.Dir); err != nil {
		return nil, err
	}
	config.Removals = 2 * config.Parallel
	if config.Network != nil {
		config.Offer = &config.Network.Offer
	}
	// Runners are led until Run or Close ends, also while what Run's end removes.
	life, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &Cluster{
		config:          config,
		starts:          fairqueue.NewLimiter(config.Parallel),
		counts:          runner.NewCounts(),
		waited:          timing.New(health.StartBounds()...),
		problems:        health.NewProblems(config.Logger),
		cached:          syncs.NewHint(),
		environmentTurn: make(fairqueue.Slots, 1),
		drainTurn:       make(fairqueue.Slots, 1),
		leave:           leave,
		environments:    map[runtime.EnvironmentID]runtime.Environment{},
		unreadable:      map[runtime.EnvironmentID]bool{},
		entries:         map[runtime.RunnerID]*entry{},
		leaks:           map[runtime.RunnerID]bool{},
	}
	c.run = func(r *runner.Runner) { c.leading.Go(func() { r.Run(life) }) }
	if err := c.open(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// realDir makes dir and returns its absolute path without symbolic links: a sandbox's directory must
// have the same path from everywhere.
func realDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// open opens the parts of the cluster in the order in which they depend on each other. After an
// error, close closes those that were opened.
func (c *Cluster) open(ctx context.Context) (err error) {
	if c.host, err = host.Open(ctx, c.config.Config); err != nil {
		return err
	}
	c.config.Agent, c.config.Helper = nil, nil // the host's
	c.probeTiers(ctx)
	c.openNetwork()
	machine, err := measure(c.host.Machine.CoreMHz)
	if err != nil {
		return err
	}
	c.scheduler, err = scheduler.New(scheduler.Config{
		Logger: c.config.Logger.Named("scheduler"), Machine: machine, Overcommit: c.config.Overcommit, Collect: c.config.Collect,
		Placed: c.onPlaced, Changed: c.changes.Send,
	})
	if err != nil {
		return err
	}
	if err := c.restoreEnvironments(ctx); err != nil {
		return err
	}
	if err := c.openImages(); err != nil {
		return fmt.Errorf("open the image cache: %w", err)
	}
	if err := c.restore(ctx); err != nil {
		return fmt.Errorf("restore what the last server left: %w", err)
	}
	since, err := c.config.Store.Draining(ctx)
	if err == nil && !since.IsZero() { // an earlier server began to drain the machine
		c.mu.Lock()
		c.draining = since
		c.mu.Unlock()
		err = c.SetDraining(ctx, true)
	}
	if err != nil {
		return fmt.Errorf("resume draining: %w", err)
	}
	c.host.PrepareRoot(ctx)
	return nil
}

// probeTiers records the isolation tiers as they are at the server's start, for Status.
func (c *Cluster) probeTiers(ctx context.Context) {
	for _, t := range c.host.Tiers(ctx) {
		if c.host.Direct != nil {
			r := c.host.Direct.Config.Runtimes[t.Name()]
			r.NoTime = t.NoTime
			c.host.Direct.Config.Runtimes[t.Name()] = r
		}
		c.tiers = append(c.tiers, t.String())
		if t.Err != nil {
			c.problems.Report("isolation", t.String())
		}
	}
}

// Tiers probes the configured isolation tiers and returns them as they are now.
func (c *Cluster) Tiers(ctx context.Context) []host.Tier { return c.host.Tiers(ctx) }

// openNetwork opens the networks that the sandbox helper offers. An error of the helper is kept: it
// disables networks, not the cluster.
func (c *Cluster) openNetwork() {
	made := access.Helper{Do: func(ctx context.Context, group string, q helper.Request) error {
		return c.host.Launcher.Do(ctx, group, q)
	}}
	if c.config.Network != nil {
		made.Offer, made.Err = c.host.Offer()
	}
	c.network = access.Open(c.config.Network, made, c.config.Logger, c.problems)
}

// Run runs the cluster until ctx ends. Then it removes all runners with their processes, mounts and
// groups, and returns what couldn't be removed. The record of a claimed runner stays, so the next
// server lists it as GONE. With Config.Keep it leaves all runners running for the next server
// instead. Run waits for every goroutine of the cluster. It is called once; the Cluster can't be
// used afterwards.
func (c *Cluster) Run(ctx context.Context) error {
	var parts, images sync.WaitGroup
	parts.Go(func() { c.scheduler.Run(ctx) })
	parts.Go(func() { c.measureAtIntervals(ctx) })
	parts.Go(func() { c.network.Run(ctx) })
	images.Go(func() { c.images.Run(ctx) })
	images.Go(func() { c.runCaches(ctx) })
	<-ctx.Done()
	parts.Wait()
	c.mu.Lock()
	c.stopping = true // from now on Start, Mark and Remove refuse
	ending := slices.Collect(maps.Values(c.entries))
	c.mu.Unlock()
	var errs []error
	if !c.config.Keep {
		errs = c.removeAll(ending)
	}
	// Runners that haven't ended are left to the next server.
	c.leaveRunners()
	images.Wait() // last: deleting images must not delay the end of runners
	c.Close()
	return errors.Join(errs...)
}

// removeAll removes runners concurrently, and forgets those that aren't claimed.
func (c *Cluster) removeAll(all []*entry) []error {
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, e := range all {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*runner.CleanWithin)
			defer cancel()
			if there, _ := c.awaitRecord(ctx, e); !there {
				return // its Start failed
			}
			errs[i] = c.endStopped(ctx, e, "the server was restarted")
		})
	}
	group.Wait()
	return errs
}

// endStopped ends a runner because a server has stopped, and waits until nothing is left of it. The record of
// one that is claimed stays.
func (c *Cluster) endStopped(ctx context.Context, e *entry, why string) error {
	c.mu.Lock()
	e.removing = true
	e.forget = e.forget || !e.info.Claim.Held()
	forget := e.forget
	c.mu.Unlock()
	wait := e.runner.Tried()
	c.end(e, runner.Exit{Reason: runtime.GoneStoppedOutside, Message: why})
	if forget {
		return c.awaitRemoval(ctx, e, wait)
	}
	return wait(ctx)
}

// leaveRunners ends the goroutines that lead runners, and waits for them. The runners stay as they
// are.
func (c *Cluster) leaveRunners() {
	c.mu.Lock()
	c.stopping, c.left = true, true
	c.mu.Unlock()
	c.leave(errStopping())
	c.leading.Wait()
}

// Close releases the directory and the runners. Call it if Run isn't called. It removes no runner.
func (c *Cluster) Close() {
	c.leaveRunners() // before Prune: a removal in the background may empty the parent group
	c.host.Prune()
	c.close()
}

func (c *Cluster) close() {
	c.leaveRunners()
	if c.network != nil {
		c.network.Close()
	}
	if c.host != nil {
		c.host.Close()
	}
}

// Dial connects to a runner's agent. RUNNER_GONE: the runner doesn't exist or is ending.
// CLUSTER_UNAVAILABLE: it is starting, or its agent can't be reached. The caller closes the
// connection.
func (c *Cluster) Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	c.mu.Lock()
	e := c.entries[id]
	live := e != nil && !e.removing && !e.runner.Ending() && e.info.State.Before(runtime.RunnerStopping)
	starting := live && e.info.State == runtime.RunnerStarting
	c.mu.Unlock()
	switch {
	case !live:
		return nil, gone(id)
	case starting:
		return nil, runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s is starting", id)
	}
	conn, err := c.host.Dial(ctx, id)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, runtime.Wrap(runtime.CodeClusterUnavailable, err, "the agent of runner %s is unreachable", id)
	}
	return conn, nil
}

// gone returns the error of calls for a runner that doesn't exist or has ended.
func gone(id runtime.RunnerID) error {
	return runtime.Errorf(runtime.CodeRunnerGone, "runner %s doesn't exist or has ended", id)
}

// Limitations is that of host.Host.
func (c *Cluster) Limitations() []string { return c.host.Limitations() }

// Watch implements runtime.Cluster. The first hint, for all environments, comes as soon as it
// watches. Mark causes no hint: its caller knows of the change.
func (c *Cluster) Watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	return c.changes.Watch(ctx, hint)
}
