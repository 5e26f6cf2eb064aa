// Package local is runtime.Cluster on this machine: runners are sandboxes
// (package sandbox) with Rockpool's agent as their first process.
//
// A runner's record is stored before anything of it is made, and everything
// that is made can be found and removed from its id alone. Each runner's life
// is led by a task (package taskrunner), whose driver and hooks are package driver's,
// and whose state is in the record. So the next server takes over what lives of a
// server that was killed or stopped, as it is, and cleans up the rest. The
// truth about runners is in memory, fed by the kernel (a pidfd per runner) and
// written through to the [Store].
package local

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/local/network/access"
	"github.com/rockpool/rockpool/local/placing"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/local/tiers"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/hints"
	"github.com/rockpool/rockpool/runtime/past"
	"github.com/rockpool/rockpool/runtime/problems"
	"github.com/rockpool/rockpool/runtime/tasks"
)

// Config says where a Cluster lives and what it runs.
type Config struct {
	host.Config // its Offer and Removals are the Cluster's to say

	Store      Store
	Network    *access.Config       // what runners may have of the machine's; nil: nothing
	Parallel   int                  // sandboxes made at once; 0: as many as there are CPUs
	Overcommit scheduler.Overcommit // how often the machine is promised; 0: see scheduler.DefaultOvercommit
	Collect    scheduler.Collect    // how long what its scheduler did can be looked at; 0: see there
	Keep       bool                 // the end of Run leaves runners running, for the next server
	Images     image.Config         // its Limits, Files, Plain, Bytes and Within; the rest is the Cluster's to say
}

// A Store keeps what must outlive the server. Its methods may be called at
// once; its errors are of type runtime.Error; what it returned nil for
// survives a SIGKILL.
type Store interface {
	// Environments and Runners call each with what is stored; of what can't be
	// read only the id is known.
	Environments(ctx context.Context, each func(env runtime.Environment, unreadable error) error) error
	PutEnvironment(ctx context.Context, env runtime.Environment) error // as runtime.Cluster's
	DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID) error
	// PutFirst stores all of them, or none, where no environment is stored. It
	// reports whether it did.
	PutFirst(ctx context.Context, environments []runtime.Environment) (bool, error)

	Runners(ctx context.Context, each func(r runtime.Runner, private []byte, unreadable error) error) error
	PutRunner(ctx context.Context, r runtime.Runner, private []byte) error // insert or replace
	MarkRunner(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error
	DeleteRunner(ctx context.Context, id runtime.RunnerID) error

	// Draining returns since when the machine is being drained; zero: it isn't.
	Draining(ctx context.Context) (time.Time, error)
	SetDraining(ctx context.Context, since time.Time) error
}

// Cluster is this machine as a runtime.Cluster. Starts wait until Run runs.
type Cluster struct {
	config       Config
	host         *host.Host
	placer       *placing.Placer
	network      *access.Access
	changes      hints.Watchers
	images       *image.Cache
	environments *environments
	counts       *tasks.Counts
	tiers        []string // as they were at the start, in words
	problems     *problems.List

	mu       sync.Mutex // guards all below; never held across I/O
	entries  map[runtime.RunnerID]*entry
	leaks    map[runtime.RunnerID]bool // of which something could not be removed, though some are forgotten
	past     past.Runners
	stopping bool
	restored bool // entries has all that the last server left
}

var _ runtime.Cluster = (*Cluster)(nil)

// restoreWithin bounds what New does with the last server's runners.
const restoreWithin = time.Minute

// New opens the cluster below config.Dir and takes over the runners of the
// last server that live: what was idle is idle, what was claimed is claimed, and
// what it had not begun to make waits for its place as it did. It removes what is
// left of the others: sandboxes, groups, directories and user ids. One of those that
// was claimed stays listed, GONE with STOPPED_OUTSIDE, until it is removed. What
// can't be restored stops nothing else; Status reports it. But New returns an error
// where it can't read whether a runner lives, and leaves that runner as it is for the
// next server. Where ctx ends before all of that is done, New returns its cause, and
// the rest is left as it is for the next server.
func New(ctx context.Context, config Config) (*Cluster, error) {
	if config.CgroupParent == "" {
		config.CgroupParent = "rockpool"
	}
	if !helper.ValidParent("/" + config.CgroupParent) {
		return nil, fmt.Errorf("cgroup parent %q must be rockpool or below it", config.CgroupParent)
	}
	if config.Parallel <= 0 {
		config.Parallel = goruntime.NumCPU()
	}
	if config.Logger == nil {
		config.Logger = zap.NewNop()
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return nil, err
	}
	if dir, err = realDir(dir); err != nil {
		return nil, err
	}
	config.Dir, config.Removals = dir, 2*config.Parallel
	if config.Network != nil {
		config.Offer = &config.Network.Offer
	}
	known := problems.New(config.Logger)
	c := &Cluster{
		config:       config,
		environments: newEnvironments(config.Store, known),
		counts:       taskrunner.NewCounts(),
		problems:     known,
		entries:      map[runtime.RunnerID]*entry{},
		leaks:        map[runtime.RunnerID]bool{},
	}
	if err := c.open(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// realDir makes dir and returns it without links, since a sandbox's directory
// must be the same wherever it is looked at from.
func realDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func (c *Cluster) open(ctx context.Context) (err error) {
	if c.host, err = host.Open(ctx, c.config.Config); err != nil {
		return err
	}
	c.config.Agent, c.config.Helper = nil, nil // the host's
	c.lookAtTiers(ctx)
	c.openNetwork()
	c.placer, err = placing.Open(ctx, placing.Config{
		Logger: c.config.Logger, Store: c.config.Store, CoreMHz: c.host.Machine.CoreMHz, Parallel: c.config.Parallel,
		Overcommit: c.config.Overcommit, Collect: c.config.Collect, Changed: c.changes.Send,
	})
	if err != nil {
		return err
	}
	if err := c.environments.restore(ctx); err != nil {
		return err
	}
	if err := c.openImages(); err != nil {
		return fmt.Errorf("the images: %w", err)
	}
	if err := c.restore(ctx); err != nil {
		return fmt.Errorf("restore what the last server left: %w", err)
	}
	if err := c.placer.GoOnDraining(ctx); err != nil {
		return err
	}
	c.host.PrepareRoot(ctx)
	return nil
}

// lookAtTiers has Status report them, as they are at the server's start.
func (c *Cluster) lookAtTiers(ctx context.Context) {
	for _, t := range tiers.Probe(ctx, c.host) {
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

// Tiers returns the settings' tiers as they are now.
func (c *Cluster) Tiers(ctx context.Context) []tiers.Tier { return tiers.Probe(ctx, c.host) }

// openNetwork opens the networks that the sandbox helper offers.
func (c *Cluster) openNetwork() {
	made := access.Helper{Ask: func(ctx context.Context, group string, q helper.Request) error {
		return c.host.Launcher.Ask(ctx, group, q)
	}}
	if c.config.Network != nil {
		made.Offer, made.Err = c.host.Offer()
	}
	c.network = access.Open(c.config.Network, made, c.config.Logger, c.problems)
}

// Close lets go of the directory and of the runners, where Run isn't called. It
// removes no runner.
func (c *Cluster) Close() {
	c.host.Prune()
	c.close()
}

func (c *Cluster) close() {
	if c.placer != nil {
		c.placer.Close()
		for _, place := range c.placer.Placed() {
			place.Task.Close()
		}
	}
	if c.network != nil {
		c.network.Close()
	}
	if c.host != nil {
		c.host.Close()
	}
}

// Dial returns RUNNER_GONE for a runner that isn't there, and
// CLUSTER_UNAVAILABLE while it starts.
func (c *Cluster) Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	c.mu.Lock()
	state := runtime.RunnerGone
	if e, ok := c.entries[id]; ok {
		if state = e.runner.State; e.removing {
			state = runtime.RunnerGone
		}
	}
	c.mu.Unlock()
	switch state {
	case runtime.RunnerGone, runtime.RunnerStopping:
		return nil, gone(id)
	case runtime.RunnerStarting:
		return nil, runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s is starting", id)
	}
	conn, err := c.host.Dial(ctx, id)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, runtime.Wrap(runtime.CodeClusterUnavailable, err, "the agent of runner %s can't be reached", id)
	}
	return conn, nil
}

func gone(id runtime.RunnerID) error {
	return runtime.Errorf(runtime.CodeRunnerGone, "runner %s isn't there", id)
}

// Lost says what runners of an ordinary user don't have, in a line; "": nothing.
func (c *Cluster) Lost() string { return c.host.Lost() }

// Watch gives a first hint for all as soon as it watches, and none for a Mark:
// who marked knows.
func (c *Cluster) Watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	return c.changes.Watch(ctx, hint)
}
