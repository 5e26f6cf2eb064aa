// Package local is runtime.Cluster on this machine: runners are sandboxes
// (package sandbox) with Rockpool's agent as their first process.
//
// A runner's record, with its group and its range of user ids, is stored
// before anything of it is made, and everything that is made can be found and
// removed from the record alone. So a server that was killed leaves nothing
// that the next one doesn't clean up. The truth about runners is in memory,
// fed by the kernel (a pidfd per runner) and written through to the [Store].
package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime"
)

// Config says where a Cluster lives and what it runs.
type Config struct {
	Dir          string // all that is on disk is below it; one server at a time
	Store        Store
	Logger       *zap.Logger
	Agent        []byte // the agent's binary
	Helper       []byte // rockpool-sandbox's binary
	CgroupParent string // "": "rockpool"; else one below it, such as "rockpool/test"
	Parallel     int    // sandboxes made at once; 0: as many as there are CPUs
}

// A Store keeps what must outlive the server. Its methods may be called at
// once; its errors are of type runtime.Error; what it returned nil for
// survives a SIGKILL.
type Store interface {
	Environments(ctx context.Context) ([]runtime.Environment, error)
	PutEnvironment(ctx context.Context, env runtime.Environment) error // as runtime.Cluster's
	DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID) error

	Runners(ctx context.Context, each func(r runtime.Runner, private []byte) error) error
	PutRunner(ctx context.Context, r runtime.Runner, private []byte) error // insert or replace
	MarkRunner(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error
	DeleteRunner(ctx context.Context, id runtime.RunnerID) error
}

// Cluster is this machine as a runtime.Cluster. Starts wait until Run runs.
type Cluster struct {
	config   Config
	log      *zap.Logger
	launcher sandbox.Launcher
	machine  sandbox.Machine
	trees    cgroup.Hierarchies
	ranges   *uids.Ranges
	unready  error // why nothing can be started; Check tells it
	lock     *os.File
	runners  *os.File // the directory of the runners' directories
	changes  hints
	removals chan struct{}  // a token for each removal at work
	tasks    sync.WaitGroup // removals and watchers
	envTurn  chan struct{}  // held by who writes an environment: store, then memory

	mu           sync.Mutex // guards all below; never held across I/O
	environments map[runtime.EnvironmentID]runtime.Environment
	entries      map[runtime.RunnerID]*entry
	queue        queue
	queued       sync.Cond // on mu: something was queued, or the end of Run
	stopping     bool
}

var _ runtime.Cluster = (*Cluster)(nil)

// recoverWithin bounds New's cleaning.
const recoverWithin = time.Minute

// New opens the cluster below config.Dir and removes what a server that died
// left there: its sandboxes, groups, directories and user ids. A runner that
// was claimed stays listed, GONE with STOPPED_OUTSIDE, until it is removed.
func New(config Config) (*Cluster, error) {
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
		launcher:     sandbox.Launcher{Path: filepath.Join(dir, "bin", "rockpool-sandbox"), StateDir: filepath.Join(dir, "state")},
		ranges:       &uids.Ranges{Dir: uids.Default, Count: sandbox.MaxSlots},
		removals:     make(chan struct{}, 2*config.Parallel),
		envTurn:      make(chan struct{}, 1),
		environments: map[runtime.EnvironmentID]runtime.Environment{},
		entries:      map[runtime.RunnerID]*entry{},
	}
	c.queued.L = &c.mu
	if err := c.open(); err != nil {
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

func (c *Cluster) open() error {
	for _, sub := range []string{"bin", "state", "runners"} {
		if err := os.MkdirAll(filepath.Join(c.config.Dir, sub), 0o700); err != nil {
			return err
		}
	}
	var err error
	if c.lock, err = os.OpenFile(filepath.Join(c.config.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := takeLock(c.lock); err != nil {
		return fmt.Errorf("another server, or a rockpool-sandbox that one left, is using %s: %w", c.config.Dir, err)
	}
	c.launcher.Lock = c.lock
	if c.runners, err = os.Open(filepath.Join(c.config.Dir, "runners")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), recoverWithin)
	defer cancel()
	if err := c.install(); err != nil {
		return err
	}
	environments, err := c.config.Store.Environments(ctx)
	if err != nil {
		return err
	}
	for _, env := range environments {
		c.environments[env.ID] = env
	}
	if err := c.recover(ctx); err != nil {
		return fmt.Errorf("clean up after the last server: %w", err)
	}
	if c.unready == nil {
		if err := sandbox.BuildRoot(c.rootDir(), c.machine, c.config.Agent); err != nil {
			c.unready = fmt.Errorf("the sandboxes' root directory: %w", err)
		}
	}
	c.config.Agent, c.config.Helper = nil, nil // installed: 10 MB that the heap needn't hold
	return nil
}

// takeLock waits for the helpers of a server that was killed: what they make
// must be there before it can be removed.
func takeLock(file *os.File) error {
	const patience, pause = 2 * time.Second, 10 * time.Millisecond
	for end := time.Now().Add(patience); ; time.Sleep(pause) { //nolint:forbidigo // flock can't be waited for otherwise
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// install puts the helper where it can be executed. What is missing isn't an
// error yet: Check names it, and Start.
func (c *Cluster) install() error {
	trees, err := cgroup.Mounted()
	if err != nil {
		c.unready = err
	}
	c.trees = trees
	c.machine = sandbox.Inspect(trees)
	if len(c.config.Agent) == 0 || len(c.config.Helper) == 0 {
		c.unready = errors.New(`the agent or rockpool-sandbox isn't built in: run "make build"`)
		return nil
	}
	return writeProgram(c.launcher.Path, c.config.Helper)
}

// writeProgram replaces a program by rename: one that runs can't be written. One
// that is the same stays, so that a full disk stops no clean-up.
func writeProgram(path string, data []byte) error {
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, data) {
		return nil
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, data, 0o755); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// Close lets go of the directory, for who doesn't call Run. It removes no
// runner.
func (c *Cluster) Close() {
	for group := "/" + c.config.CgroupParent; group != "/"; group = filepath.Dir(group) {
		c.trees.Prune(group)
	}
	c.close()
}

func (c *Cluster) close() {
	for _, f := range []*os.File{c.runners, c.lock} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (c *Cluster) rootDir() string    { return filepath.Join(c.config.Dir, "root") }
func (c *Cluster) runnersDir() string { return filepath.Join(c.config.Dir, "runners") }

func (c *Cluster) runnerDir(id runtime.RunnerID) string {
	return filepath.Join(c.runnersDir(), string(id))
}

// socketPath is a way to a runner's socket that is short however long Dir is:
// a socket's address holds 108 bytes.
func (c *Cluster) socketPath(id runtime.RunnerID) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(c.runners.Fd())), string(id), "agent.sock")
}

// Dial returns RUNNER_GONE for a runner that isn't there, and
// CLUSTER_UNAVAILABLE while it starts.
func (c *Cluster) Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	c.mu.Lock()
	state := runtime.RunnerGone
	if e, ok := c.entries[id]; ok {
		state = e.runner.State
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

func (c *Cluster) dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", c.socketPath(id))
}

func gone(id runtime.RunnerID) error {
	return runtime.Errorf(runtime.CodeRunnerGone, "runner %s isn't there", id)
}
