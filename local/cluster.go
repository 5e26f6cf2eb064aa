// Package local is runtime.Cluster on this machine: runners are sandboxes
// (package sandbox) with Rockpool's agent as their first process.
//
// A runner's record is stored before anything of it is made, and everything
// that is made can be found and removed from its id alone. Each runner's life
// is led by a task (package taskrunner), whose driver and hooks are here, and
// whose state is in the record. So the next server takes over what lives of a
// server that was killed or stopped, as it is, and cleans up the rest. The
// truth about runners is in memory, fed by the kernel (a pidfd per runner) and
// written through to the [Store].
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

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/image"
	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/access"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/hints"
	"github.com/rockpool/rockpool/runtime/past"
	"github.com/rockpool/rockpool/runtime/problems"
	"github.com/rockpool/rockpool/runtime/timing"
	"github.com/rockpool/rockpool/runtime/turns"
)

// Config says where a Cluster lives and what it runs.
type Config struct {
	Dir           string // all that is on disk is below it; one server at a time
	Store         Store
	Logger        *zap.Logger
	Agent         []byte               // the agent's binary
	Helper        []byte               // rockpool-sandbox's binary
	Network       *access.Config       // what runners may have of the machine's; nil: nothing
	ImageWorker   string               // a program that works as image.Work when helper.WorkerArgument is its argument, for who isn't root
	HelperSocket  string               // of a rockpool-sandbox that listens, for who isn't root; "": one is started for each sandbox
	CgroupParent  string               // "": "rockpool"; else one below it, such as "rockpool/test"
	MissingLimits bool                 // runners are started without limits that can't be set, which Status tells
	Parallel      int                  // sandboxes made at once; 0: as many as there are CPUs
	Overcommit    scheduler.Overcommit // how often the machine is promised; 0: see scheduler.DefaultOvercommit
	Collect       scheduler.Collect    // how long what its scheduler did can be looked at; 0: see there
	Keep          bool                 // the end of Run leaves runners running, for the next server
	DiskRead      int64                // bytes a second that a runner reads from each disk at most; 0: any; not used with HelperSocket
	Runtimes      oci.Runtimes         // that make sandboxes beside Rockpool's own, by name: gVisor's, and others; not used with HelperSocket: they are the helper's
	Images        image.Config         // its Limits, Files, Plain, Bytes and Within; the rest is the Cluster's to say
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
	config   Config
	log      *zap.Logger
	launcher launcher
	network  *access.Access
	offered  *network.Offer // by a helper that listens
	runtimes []string       // the names of those that can be asked for, sorted
	direct   *launch.Direct // the launcher; nil: a helper that listens is asked
	machine  spec.Machine
	trees    cgroup.Hierarchies
	ranges   *uids.Ranges
	unready  error // why nothing can be started; Check tells it

	// Of an ordinary user's.
	undelegated error    // why it has no control groups
	losses      []string // what its runners don't have, beside limits

	lock      *os.File
	runners   *os.File // the directory of the runners' directories
	changes   hints.Watchers
	gate      *turns.Gate // of runners' starts
	scheduler *scheduler.Scheduler
	images    *image.Cache
	counts    *taskrunner.Counts
	placing   *timing.Histogram // from the wish for a runner to its place
	removals  turns.Slots
	wake      chan struct{} // capacity 1: something was placed
	envTurn   turns.Slots   // of who writes an environment: store, then memory
	drainTurn turns.Slots   // of who drains, or ends that
	tiers     []string      // as they were at the start, in words
	root      string        // the name of the directory that sandboxes are made around
	rootTurn  turns.Slots   // of who makes it
	problems  *problems.List

	scheduling    sync.WaitGroup // the scheduler's Run
	endScheduling func()         // has that end; nil: it never began

	mu           sync.Mutex // guards all below; never held across I/O
	environments map[runtime.EnvironmentID]runtime.Environment
	unreadable   map[runtime.EnvironmentID]bool
	entries      map[runtime.RunnerID]*entry
	placed       []*entry // whose task Run is to lead
	past         past.Runners
	leaked       int       // entries that are
	draining     time.Time // since when; zero: not
	stopping     bool
	restored     bool // entries has all that the last server left
}

var _ runtime.Cluster = (*Cluster)(nil)

// restoreWithin bounds what New does with the last server's runners.
const restoreWithin = time.Minute

// New opens the cluster below config.Dir and takes over the runners of the
// last server that live: what was idle is idle, what was claimed is claimed, and
// what it had not begun to make waits for its place as it did. It removes what
// is left of the others: sandboxes, groups, directories and user ids. One of those that was claimed stays listed, GONE with
// STOPPED_OUTSIDE, until it is removed. What can't be restored stops nothing
// else; Status tells it. But New returns an error where it can't read whether a
// runner lives, and leaves that runner as it is for the next server. Where ctx ends before all of that is done, New returns
// its cause, and the rest is left as it is for the next server.
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
	config.Dir = dir
	c := &Cluster{
		config:       config,
		log:          config.Logger,
		ranges:       &uids.Ranges{Dir: uids.Default, Count: spec.MaxSlots},
		gate:         turns.NewGate(config.Parallel),
		counts:       taskrunner.NewCounts(),
		placing:      timing.New(taskrunner.StartBounds()...),
		removals:     make(turns.Slots, 2*config.Parallel),
		wake:         make(chan struct{}, 1),
		root:         string(runtime.NewRunnerID()),
		envTurn:      make(turns.Slots, 1),
		drainTurn:    make(turns.Slots, 1),
		rootTurn:     make(turns.Slots, 1),
		problems:     problems.New(config.Logger),
		environments: map[runtime.EnvironmentID]runtime.Environment{},
		unreadable:   map[runtime.EnvironmentID]bool{},
		entries:      map[runtime.RunnerID]*entry{},
	}
	if config.HelperSocket != "" {
		c.launcher = launch.Remote{Socket: config.HelperSocket, Parent: "/" + config.CgroupParent}
	} else {
		c.direct = &launch.Direct{
			Path:   filepath.Join(dir, "bin", "rockpool-sandbox"),
			Config: helper.Config{State: filepath.Join(dir, "state"), Root: c.rootDir(), Runtimes: maps.Clone(config.Runtimes), DiskRead: config.DiskRead},
			Worker: config.ImageWorker, Working: new(sync.WaitGroup),
		}
		c.runtimes = slices.Sorted(maps.Keys(config.Runtimes))
		if config.Network != nil {
			c.direct.Config.Network = &config.Network.Offer
		}
		c.launcher = c.direct
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

func (c *Cluster) open(ctx context.Context) error {
	for _, sub := range []string{"bin", "state", "runners", "roots"} {
		if err := os.MkdirAll(filepath.Join(c.config.Dir, sub), 0o700); err != nil {
			return err
		}
	}
	var err error
	if c.lock, err = os.OpenFile(filepath.Join(c.config.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := launch.TakeLock(c.lock); err != nil {
		return fmt.Errorf("another server, or a rockpool-sandbox that one left, is using %s: %w", c.config.Dir, err)
	}
	if c.runners, err = os.Open(filepath.Join(c.config.Dir, "runners")); err != nil {
		return err
	}
	if err := c.install(ctx); err != nil {
		return err
	}
	c.lookAtTiers(ctx)
	c.openNetwork()
	if err := c.restoreEnvironments(ctx); err != nil {
		return err
	}
	if err := c.openImages(); err != nil {
		return fmt.Errorf("the images: %w", err)
	}
	if err := c.restore(ctx); err != nil {
		return fmt.Errorf("restore what the last server left: %w", err)
	}
	c.config.Helper = nil // installed: bytes that the heap needn't hold
	if c.Draining() {
		if err := c.endUnheld(ctx); err != nil {
			return fmt.Errorf("go on draining: %w", err)
		}
	}
	if c.unready == nil {
		if err := c.buildRoot(ctx); err != nil && !isFull(err) { // else the next start tries again
			c.unready = err
		}
	}
	return nil
}

// openNetwork opens the networks that the sandbox helper offers.
func (c *Cluster) openNetwork() {
	made := access.Helper{Ask: func(ctx context.Context, group string, q helper.Request) error { return c.launcher.Ask(ctx, group, q) }}
	switch {
	case c.config.Network == nil:
	case c.ordinary():
		made.Err = errors.New("only root can give runners one: run a sandbox helper as root")
	case c.direct != nil:
		made.Offer = c.config.Network.Offer
	case c.offered == nil:
		made.Err = errors.New("the sandbox helper offers none: start it with --network, too")
	default:
		made.Offer = *c.offered
	}
	c.network = access.Open(c.config.Network, made, c.log, c.problems)
}

// buildRoot makes this server's root directory, unless it is there. On a full
// disk it has to be tried again.
func (c *Cluster) buildRoot(ctx context.Context) error {
	return c.rootTurn.Do(ctx, c.makeRoot)
}

func (c *Cluster) makeRoot() error {
	if c.config.Agent == nil || c.direct == nil { // who listens has its own
		return nil
	}
	if err := spec.BuildRoot(c.rootDir(), c.machine, c.config.Agent); err != nil {
		return fmt.Errorf("the sandboxes' root directory: %w", err)
	}
	if offer := c.direct.Config.Network; offer != nil {
		if err := spec.WriteResolver(c.rootDir(), offer.Pool.Gateway()); err != nil {
			return fmt.Errorf("the sandboxes' root directory: %w", err)
		}
	}
	c.config.Agent = nil // installed, like the helper
	return nil
}

// install puts the helper where it can be executed. What is missing isn't an
// error yet: Check names it, and Start.
func (c *Cluster) install(ctx context.Context) error {
	if c.direct != nil && os.Geteuid() != 0 {
		c.installRootless()
	} else if c.trees, c.unready = cgroup.Mounted(); c.unready != nil {
		c.trees = nil
	}
	trees := c.trees
	c.machine = spec.Inspect(trees)
	if c.direct == nil {
		return c.greet(ctx)
	}
	c.direct.Config.Machine, c.direct.Lock = c.machine, c.lock
	c.direct.Config.AcceptMissing = c.config.MissingLimits
	if len(c.config.Agent) == 0 || len(c.config.Helper) == 0 {
		c.unready = errors.New(`the agent or rockpool-sandbox isn't built in: run "make build"`)
		return nil
	}
	return launch.WriteProgram(c.direct.Path, c.config.Helper)
}

// Close lets go of the directory and of the runners, for who doesn't call Run.
// It removes no runner.
func (c *Cluster) Close() {
	for group := "/" + c.config.CgroupParent; group != "/"; group = filepath.Dir(group) {
		c.trees.Prune(group)
	}
	c.close()
}

func (c *Cluster) close() {
	c.stopScheduling()
	if c.direct != nil {
		c.direct.Working.Wait()
	}
	for _, e := range c.placed {
		e.task.Close()
	}
	if c.network != nil {
		c.network.Close()
	}
	for _, f := range []*os.File{c.runners, c.lock} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (c *Cluster) runnersDir() string { return filepath.Join(c.config.Dir, "runners") }
func (c *Cluster) rootsDir() string   { return filepath.Join(c.config.Dir, "roots") }

// rootDir is this server's own: the runners of the last one live on in its.
func (c *Cluster) rootDir() string { return filepath.Join(c.rootsDir(), c.root) }

func (c *Cluster) runnerDir(id runtime.RunnerID) string {
	return filepath.Join(c.runnersDir(), string(id))
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
	conn, err := c.dial(ctx, id)
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

// Watch gives a first hint for all as soon as it watches, and none for a Mark:
// who marked knows.
func (c *Cluster) Watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	return c.changes.Watch(ctx, hint)
}
