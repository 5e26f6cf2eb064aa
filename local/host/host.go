// Package host is what this machine and a server's directory have for sandboxes: the
// helper that makes them, control groups, ranges of user ids, the directory that they
// are made around, and the sockets of their agents. What it makes for a runner is
// found again by the runner's id alone.
package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/turns"
)

// Config is what a Host has.
type Config struct {
	Dir           string // all that is on disk is below it; one server at a time
	Logger        *zap.Logger
	Agent         []byte         // the agent's binary
	Helper        []byte         // rockpool-sandbox's binary
	Offer         *network.Offer // what runners may have of the machine's network; nil: nothing
	ImageWorker   string         // a program that works as image.Work when helper.WorkerArgument is its argument, for a server that isn't root
	HelperSocket  string         // of a rockpool-sandbox that listens, for a server that isn't root; "": one is started for each sandbox
	CgroupParent  string         // "": "rockpool"; else one below it, such as "rockpool/test"
	MissingLimits bool           // runners are started without limits that can't be set, which Lost reports
	Removals      int            // of sandboxes, at once
	DiskRead      int64          // bytes a second that a runner reads from each disk at most; 0: any; not used with HelperSocket
	Runtimes      oci.Runtimes   // that make sandboxes beside Rockpool's own, by name; not used with HelperSocket: they are the helper's
}

// A Launcher makes and removes sandboxes; see package launch.
type Launcher interface {
	Create(ctx context.Context, group string, q helper.Request, listener *os.File) (helper.Answer, error)
	Remove(ctx context.Context, id, group string) error
	Ask(ctx context.Context, group string, q helper.Request) error
	Probe(ctx context.Context, runtime string) (version string, noTime bool, err error)
}

// A Host is open until Close. Its fields don't change, and its methods may be called
// at once.
type Host struct {
	Launcher Launcher
	Direct   *launch.Direct // the Launcher; nil: a helper that listens is asked
	Machine  spec.Machine
	Trees    cgroup.Hierarchies
	Ranges   *uids.Ranges // of user ids; not used by a helper that listens
	Runtimes []string     // the names of those that can be asked for, sorted
	Root     string       // the name of the directory that this server's sandboxes are made around

	Removals turns.Slots // for removals, which cost the machine something

	config   Config
	unready  error          // why nothing can be started
	offered  *network.Offer // by a helper that listens
	rootless rootless
	lock     *os.File
	runners  *os.File // the directory of the runners' directories
	rootTurn turns.Slots
}

// Open takes the directory, and finds out what there is. What is missing for
// sandboxes is no error yet: Ready and Missing return it.
func Open(ctx context.Context, config Config) (*Host, error) {
	h := &Host{
		config:   config,
		Ranges:   &uids.Ranges{Dir: uids.Default, Count: spec.MaxSlots},
		Root:     string(runtime.NewRunnerID()),
		Removals: make(turns.Slots, config.Removals),
		rootTurn: make(turns.Slots, 1),
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
		if os.Geteuid() == 0 {
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
		return fmt.Errorf("another server, or a rockpool-sandbox that one left, is using %s: %w", h.config.Dir, err)
	}
	if h.runners, err = os.Open(h.RunnersDir()); err != nil {
		return err
	}
	return h.install(ctx)
}

// install puts the helper where it can be executed.
func (h *Host) install(ctx context.Context) error {
	if h.Direct != nil && os.Geteuid() != 0 {
		h.installRootless()
	} else if h.Trees, h.unready = cgroup.Mounted(); h.unready != nil {
		h.Trees = nil
	}
	h.Machine = spec.Inspect(h.Trees)
	if h.Direct == nil {
		return h.greet(ctx)
	}
	h.Direct.Config.Machine, h.Direct.Lock = h.Machine, h.lock
	h.Direct.Config.AcceptMissing = h.config.MissingLimits
	if len(h.config.Agent) == 0 || len(h.config.Helper) == 0 {
		h.unready = errors.New(`the agent or rockpool-sandbox isn't built in: run "make build"`)
		return nil
	}
	defer func() { h.config.Helper = nil }() // installed: bytes that the heap needn't hold
	return launch.WriteProgram(h.Direct.Path, h.config.Helper)
}

// Close gives back the directory, once no helper works any more.
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

// Prune removes the groups that runners' groups were below, where they are empty.
func (h *Host) Prune() {
	for group := "/" + h.config.CgroupParent; group != "/"; group = filepath.Dir(group) {
		h.Trees.Prune(group)
	}
}

// Ready returns why nothing can be started; nil: it can.
func (h *Host) Ready() error { return h.unready }

// Offer returns what the helper offers of the machine's network, and why it offers
// nothing.
func (h *Host) Offer() (network.Offer, error) {
	offer := h.offered
	switch {
	case h.Ordinary():
		return network.Offer{}, errors.New("only root can give runners one: run a sandbox helper as root")
	case h.Direct != nil:
		offer = h.config.Offer
	case offer == nil:
		return network.Offer{}, errors.New("the sandbox helper offers none: start it with --network, too")
	}
	return *offer, nil
}

// RunnersDir has the runners' directories.
func (h *Host) RunnersDir() string { return filepath.Join(h.config.Dir, "runners") }

// RunnerDir is a runner's own.
func (h *Host) RunnerDir(id runtime.RunnerID) string {
	return filepath.Join(h.RunnersDir(), string(id))
}

// TakePlace makes a runner's directory, and returns the range of user ids that it
// holds for the runner: so either is found from the runner's id. A helper that listens
// has the ranges: 0.
func (h *Host) TakePlace(id runtime.RunnerID) (slot int, err error) {
	dir := h.RunnerDir(id)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, Explained(err)
	}
	if h.Direct == nil {
		return 0, nil
	}
	if slot, err = h.Ranges.Take(dir); err != nil {
		return 0, noUserIDs(err)
	}
	return slot, nil
}

// GivePlace gives back a runner's user ids, which nothing uses any more, and deletes
// its directory. Without slots they are looked for: a server may have died before it
// had recorded them.
func (h *Host) GivePlace(id runtime.RunnerID, slots ...int) error {
	dir := h.RunnerDir(id)
	if h.Direct == nil {
		return os.RemoveAll(dir)
	}
	if _, err := os.Lstat(dir); err == nil && len(slots) == 0 {
		all, err := h.Ranges.Held(h.RunnersDir())
		if err != nil {
			return fmt.Errorf("find its user ids: %w", err)
		}
		for slot, holder := range all {
			if holder == dir {
				slots = append(slots, slot)
			}
		}
	}
	for _, slot := range slots {
		if err := h.Ranges.Release(slot, dir); err != nil {
			return fmt.Errorf("release user ids %d: %w", slot, err)
		}
	}
	return os.RemoveAll(dir)
}

// SweepRanges gives back the ranges of user ids whose runner isn't known.
func (h *Host) SweepRanges(known func(runtime.RunnerID) bool) error {
	if h.Direct == nil {
		return nil
	}
	held, err := h.Ranges.Held(h.RunnersDir())
	if err != nil {
		return err
	}
	for n, holder := range held {
		if known(runtime.RunnerID(filepath.Base(holder))) {
			continue
		}
		if err := h.Ranges.Release(n, holder); err != nil {
			return err
		}
	}
	return nil
}
