// Package host manages what sandboxes use of this machine and of a server's directory. That is the
// helper that makes them, cgroups, ranges of user ids, the root directory, and the sockets of
// agents. Everything that it makes for a runner can be found by the runner's id alone.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
)

// Config configures a Host.
type Config struct {
	Dir           string // everything on disk is below it; one server at a time
	Caches        string // directory of the languages' caches, which several servers may share; "" means a directory below Dir
	Logger        *zap.Logger
	Agent         []byte         // the agent's binary
	Helper        []byte         // rockpool-sandbox's binary
	Offer         *network.Offer // the network that runners may use; nil means none
	ImageWorker   string         // without root: a program that runs image.Work for helper.WorkerArgument
	HelperSocket  string         // socket of a listening sandbox helper, for a server that isn't root; "" means none
	CgroupParent  string         // "" means "rockpool"; else "rockpool", or a path below it such as "rockpool/test"
	MissingLimits bool           // start runners without limits that can't be set; Limitations reports them
	Removals      int            // concurrent removals of sandboxes
	DiskRead      int64          // bytes/s that a runner may read from each disk; 0 means no limit; unused with HelperSocket
	Runtimes      oci.Runtimes   // OCI runtimes by name; unused with HelperSocket: the helper has its own
}

// A Launcher makes and removes sandboxes; see package launch. Its methods are safe for concurrent
// use.
type Launcher interface {
	Create(ctx context.Context, group string, q helper.Request, listener *os.File) (helper.Answer, error)
	Remove(ctx context.Context, id, group string) error
	Do(ctx context.Context, group string, q helper.Request) error
	Probe(ctx context.Context, runtime string) (version string, noTime bool, err error)
}

// A Host is open until Close. Its fields don't change, and its methods are safe for concurrent use.
type Host struct {
	Launcher Launcher
	Direct   *launch.Direct // the Launcher, if this server makes sandboxes itself; nil means that a listening helper makes them
	Machine  spec.Machine
	Trees    cgroup.Hierarchies
	Ranges   *uids.Ranges // ranges of user ids; unused with a listening helper
	Runtimes []string     // names of the available OCI runtimes, sorted
	Root     string       // name of the root directory of this server's sandboxes

	Removals fairqueue.Slots // limits concurrent removals, which are costly

	config    Config
	inherited string         // what programs inherit from the starter of this server; "" means nothing
	unready   error          // why no sandbox can be started; nil means that one can be
	offered   *network.Offer // offered by a listening helper
	rootless  rootless
	lock      *os.File
	runners   *os.File        // the open directory of the runners' directories
	rootTurn  fairqueue.Slots // capacity 1: held while the root directory is built
}

// Open locks the directory, and inspects the machine. If something is missing for sandboxes, that
// is no error yet: Ready and Missing return it. An error: another server uses the directory, or the
// helper is unavailable.
func Open(ctx context.Context, config Config) (*Host, error) {
	config.Caches = cmp.Or(config.Caches, filepath.Join(config.Dir, "caches"))
	h := &Host{
		config:   config,
		Ranges:   &uids.Ranges{Dir: uids.Default, Count: spec.MaxSlots, First: spec.FirstUID, Size: spec.UIDs},
		Root:     string(runtime.NewRunnerID()),
		Removals: make(fairqueue.Slots, config.Removals),
		rootTurn: make(fairqueue.Slots, 1),
	}
	if config.HelperSocket != "" {
		h.Launcher = launch.Remote{Socket: config.HelperSocket, Parent: "/" + config.CgroupParent}
	} else {
		h.Direct = &launch.Direct{
			Path: filepath.Join(config.Dir, "bin", "rockpool-sandbox"),
			Config: helper.Config{
				State: filepath.Join(config.Dir, "state"), Root: h.rootDir(), Runtimes: maps.Clone(config.Runtimes),
				DiskRead: config.DiskRead, Network: config.Offer,
			},
			Worker: config.ImageWorker, Working: new(sync.WaitGroup),
		}
		h.Runtimes = slices.Sorted(maps.Keys(config.Runtimes))
		if uids.Root() {
			h.Direct.Maker = new(launch.Maker)
		}
		h.Launcher = h.Direct
	}
	if err := h.open(ctx); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

func (h *Host) open(ctx context.Context) error {
	for _, sub := range []string{"bin", "state", "runners", "roots"} {
		if err := os.MkdirAll(filepath.Join(h.config.Dir, sub), 0o700); err != nil {
			return err
		}
	}
	var err error
	if h.lock, err = os.OpenFile(filepath.Join(h.config.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := launch.TakeLock(h.lock); err != nil {
		return fmt.Errorf("%s is in use by another server, or by a rockpool-sandbox that one left: %w", h.config.Dir, err)
	}
	// SocketPath makes short paths with this descriptor.
	if h.runners, err = os.Open(h.RunnersDir()); err != nil {
		return err
	}
	return h.install(ctx)
}

// install writes the helper to where it can be executed.
func (h *Host) install(ctx context.Context) error {
	if h.Direct != nil && !uids.Root() {
		h.installRootless()
	} else if h.Trees, h.unready = cgroup.Mounted(); h.unready != nil {
		h.Trees = nil
	}
	h.Machine = spec.Inspect(h.Trees)
	if h.Direct == nil {
		return h.greet(ctx)
	}
	// Programs of a listening helper inherit nothing from this server.
	if h.inherited = spec.Inherited(); h.inherited != "" {
		h.config.Logger.Warn(h.inherited)
	}
	h.Direct.Config.Machine, h.Direct.Lock = h.Machine, h.lock
	h.Direct.Config.AcceptMissing = h.config.MissingLimits
	if len(h.config.Agent) == 0 || len(h.config.Helper) == 0 {
		h.unready = errors.New(`the agent or rockpool-sandbox isn't built in: run "make build"`)
		return nil
	}
	defer func() { h.config.Helper = nil }() // installed: free its memory
	return launch.WriteProgram(h.Direct.Path, h.config.Helper)
}

// Close waits for running helpers, then unlocks the directory.
func (h *Host) Close() {
	if h.Direct != nil {
		h.Direct.Working.Wait()
		if h.Direct.Maker != nil {
			h.Direct.Maker.Close()
		}
	}
	for _, f := range []*os.File{h.runners, h.lock} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// Prune removes the cgroups above the runners' cgroups, if they are empty.
func (h *Host) Prune() { h.Trees.Prune("/" + h.config.CgroupParent) }

// Ready returns why no sandbox can be started; nil means that they can be started.
func (h *Host) Ready() error { return h.unready }

// Offer returns the network that the helper offers, or an error that says why it offers none.
func (h *Host) Offer() (network.Offer, error) {
	offer := h.offered
	switch {
	case h.Rootless():
		return network.Offer{}, errors.New("only root can give runners a network: run a sandbox helper as root")
	case h.Direct != nil:
		offer = h.config.Offer
	case offer == nil:
		return network.Offer{}, errors.New("the sandbox helper offers no network: start it with --network, too")
	}
	return *offer, nil
}

// RunnersDir returns the directory of the runners' directories.
func (h *Host) RunnersDir() string { return filepath.Join(h.config.Dir, "runners") }

// RunnerDir returns a runner's directory.
func (h *Host) RunnerDir(id runtime.RunnerID) string {
	return filepath.Join(h.RunnersDir(), string(id))
}

// Reserve makes a runner's directory, and returns the number of the range of user ids that it
// reserves for the runner. Both can be found by the runner's id. With a listening helper, which
// manages the ranges, it returns 0. Each further call reserves one more range.
func (h *Host) Reserve(id runtime.RunnerID) (slot int, err error) {
	dir := h.RunnerDir(id)
	// The directory comes first: a range whose holder is missing counts as free.
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, Explained(err)
	}
	if h.Direct == nil {
		return 0, nil
	}
	if slot, err = h.Ranges.Take(dir); err != nil {
		return 0, Explained(err)
	}
	return slot, nil
}

// Release releases a runner's user ids, which must be unused, and deletes its directory. Without
// slots it searches for the ranges: a server may have died before it recorded them.
func (h *Host) Release(id runtime.RunnerID, slots ...int) error {
	dir := h.RunnerDir(id)
	if h.Direct == nil {
		return os.RemoveAll(dir)
	}
	if _, err := os.Lstat(dir); err == nil && len(slots) == 0 {
		if err := h.releaseRanges(func(holder string) bool { return holder == dir }); err != nil {
			return err
		}
	}
	// The directory is deleted last: until then, the next server finds what is left of the runner
	// by it.
	for _, slot := range slots {
		if err := h.Ranges.Release(slot, dir); err != nil {
			return fmt.Errorf("release the range of user ids %d: %w", slot, err)
		}
	}
	return os.RemoveAll(dir)
}

// SweepRanges releases the ranges of user ids whose runner is unknown.
func (h *Host) SweepRanges(known map[runtime.RunnerID]bool) error {
	if h.Direct == nil {
		return nil
	}
	return h.releaseRanges(func(holder string) bool { return !known[runtime.RunnerID(filepath.Base(holder))] })
}

// releaseRanges releases the ranges of user ids of some holders.
func (h *Host) releaseRanges(of func(holder string) bool) error {
	held, err := h.Ranges.Held(h.RunnersDir())
	if err != nil {
		return fmt.Errorf("find ranges of user ids: %w", err)
	}
	for slot, holder := range held {
		if of(holder) {
			err = errors.Join(err, h.Ranges.Release(slot, holder))
		}
	}
	return err
}

// Bounds of the wait for a listening helper. It may be starting, too. If systemd holds its socket,
// a connection succeeds before the helper answers.
const (
	reachWithin = 5 * time.Second
	greetWithin = 30 * time.Second
)

// greet checks that the listening helper is compatible with this server's settings.
func (h *Host) greet(ctx context.Context) error {
	remote := launch.Remote{Socket: h.config.HelperSocket}
	silent := &launch.UnreachableError{Socket: remote.Socket, Err: fmt.Errorf("it hasn't answered for %s", greetWithin)}
	ctx, cancel := context.WithTimeoutCause(ctx, greetWithin, silent)
	defer cancel()
	reached := time.After(reachWithin)
	for {
		answer, err := remote.Hello(ctx)
		_, away := errors.AsType[*launch.UnreachableError](err)
		switch parent := "/" + h.config.CgroupParent; {
		case err == nil && answer.Parent != parent:
			return fmt.Errorf("the sandbox helper makes runners' cgroups below %s, not below %s: set the same --cgroup-parent for both", answer.Parent, parent)
		case err == nil:
			// Otherwise New would fail later, at the first restored runner.
			if err := h.Trees.Readable(parent); err != nil {
				return fmt.Errorf("this server can't read the cgroups below %s: restart the sandbox helper to make them readable: %w", parent, err)
			}
			h.offered, h.Runtimes = answer.Network, answer.Runtimes
			return nil
		case !away:
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond): // there is no other way to wait until it listens
		case <-reached:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// rootsDir returns the parent of the root directories of this server and earlier ones.
func (h *Host) rootsDir() string { return filepath.Join(h.config.Dir, "roots") }

// rootDir is this server's root directory. Runners of an earlier server keep using that server's.
func (h *Host) rootDir() string { return filepath.Join(h.rootsDir(), h.Root) }

// BuildRoot makes this server's root directory, unless it exists. If the disk is full, call it
// again later.
func (h *Host) BuildRoot(ctx context.Context) error {
	if h.Direct == nil { // a listening helper makes its own
		return nil
	}
	return h.rootTurn.Do(ctx, h.buildRoot)
}

// buildRoot makes the root directory once: afterwards the agent's binary is released, and further
// calls do nothing. The caller has rootTurn.
func (h *Host) buildRoot() error {
	if h.config.Agent == nil {
		return nil
	}
	err := spec.BuildRoot(h.rootDir(), h.Machine, h.config.Agent)
	if offer := h.Direct.Config.Network; err == nil && offer != nil {
		err = spec.WriteResolver(h.rootDir(), offer.Pool.Gateway())
	}
	if err != nil {
		return fmt.Errorf("make the root directory of sandboxes: %w", err)
	}
	h.config.Agent = nil // installed: free its memory
	return nil
}

// PrepareRoot makes the root directory at the server's start. After an error that retrying can't
// fix, Ready returns that error.
func (h *Host) PrepareRoot(ctx context.Context) {
	if h.unready != nil {
		return
	}
	if err := h.BuildRoot(ctx); err != nil && !IsFull(err) { // if the disk is full, the next runner's start retries
		h.unready = err
	}
}

// SweepRoots deletes the root directories that no sandbox uses.
func (h *Host) SweepRoots(used []string) error {
	if h.Direct == nil {
		return nil
	}
	return spec.SweepRoots(h.rootsDir(), used)
}
