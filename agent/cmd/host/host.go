// Package host runs commands and serves files in the runner, or on the machine, that the agent is
// in. It guarantees that the agent is confined before the first command starts. Package agent is
// its protocol.
package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/files"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/kernelmemory"
	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/memory"
	"github.com/rockpool/rockpool/agent/cmd/namespaces"
	"github.com/rockpool/rockpool/agent/cmd/process"
	"github.com/rockpool/rockpool/agent/serve"
)

// firstGroups is the first descriptor of [Options.Groups].
const firstGroups = 4

// Options configure an agent.
type Options struct {
	Version       string
	Workspace     string
	Groups        string // controllers whose groups of commands are inherited, as descriptors from firstGroups on; see groups.Open
	OpenFiles     int    // limit for each process of a command; 0: the agent's own
	Degraded      bool   // serve even if parts of the confinement are unavailable
	NoRoot        bool   // no command may run as root, since root is root of the machine
	SharedNetwork bool   // the network is the machine's
	SharedIPC     bool   // other tasks share the namespace of System V objects
	Zygote        bool   // an interpreter can be preloaded (package warm)
	Task          bool   // a Nomad task: the confinement must be complete although the agent isn't PID 1
	Image         bool   // commands get this process's environment and working directory, which an image set

	Inner *groups.Inner // the group in the runner's own kernel; nil: it has none
	Whole *groups.Whole // the whole runner's group; nil: it isn't visible
	Ready func() error  // called when the agent can serve; nil: not called
}

// A host is the runner or the machine that the agent is in. It implements [serve.Host].
type host struct {
	*files.Files
	starter *process.Starter
	image   *image   // nil: the server knows the image
	threads []string // variables for the number of threads

	lacksLocale func() bool // evaluated once

	first   sync.Once
	prepare func() // called once, before the first command
}

// Start implements [serve.Host].
func (h *host) Start(start agent.Start) (serve.Process, error) {
	h.first.Do(h.prepare)
	start = h.image.complete(start)
	start.Env = withVariables(h.withoutMissingLocale(start.Env, start.Defaults), append(ofCaches(agent.Caches), h.threads...))
	dir, err := h.WorkingDirectory(start.Dir)
	if err != nil {
		return nil, err
	}
	candidates, err := h.LookUp(start.Argv[0], dir, start.Env)
	if err != nil {
		return nil, err
	}
	return h.starter.Start(start, dir, candidates)
}

// Now implements [serve.Host].
func (h *host) Now() serve.Now { return h.starter.Now() }

// Serve confines this process, and serves until the listener fails or a signal ends it. It always
// returns an error. It kills all commands before it returns.
func Serve(listener net.Listener, o Options) error {
	// Commands must not inherit the agent's descriptors.
	if err := unix.CloseRange(3, 1<<20, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	launch.ResetSignals()
	// Before anything can be started, so that no child's end is missed.
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTERM, syscall.SIGINT)

	memory.Tune()
	h, err := newHost(o)
	if err != nil {
		return err
	}
	// The agent is confined before it reports that it is ready.
	if o.Ready != nil {
		if err := o.Ready(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go h.starter.Reap(children) // until the program ends
	go func() {                 // until the program ends
		cancel(fmt.Errorf("signal: %v", <-stops))
	}()
	idle := memory.NewIdler()
	go idle.Run() // until the program ends
	server := serve.New(h, serve.Config{Version: o.Version, Report: report, Idle: idle.Hint})
	err = server.Serve(ctx, listener)
	server.Close()
	return err
}

// report writes an error to the agent's standard error.
func report(err error) { fmt.Fprintln(os.Stderr, "agent:", err) }

// newHost confines this process, and returns its host.
func newHost(o Options) (*host, error) {
	// The filter must allow the system calls that package launch needs, so this is decided first.
	forks := launch.CanFork()
	ownNetwork := os.Getpid() == 1 && o.Inner == nil && !o.Task && !o.SharedNetwork
	var connections *kernelmemory.Connections
	if ownNetwork {
		var err error
		if connections, err = kernelmemory.OpenConnections(); err != nil { // before the filter forbids it
			return nil, err
		}
	}
	thread, zygotes, gaps := confinement.Apply(forks, ownNetwork, o.Zygote)
	if len(gaps) > 0 {
		err := fmt.Errorf("confinement: %w", errors.Join(gaps...))
		if (os.Getpid() == 1 || o.Task) && !o.Degraded {
			return nil, err // a runner with an incomplete confinement must not serve
		}
		report(err)
	}
	if o.Groups == "" { // else commands can't use up the agent's processes
		memory.SpareThreads(memory.Threads)
	}
	c := process.Config{Thread: thread, Inner: o.Inner, Whole: o.Whole, Connections: connections, OwnIPC: kernelmemory.OwnsIPC() && !o.SharedIPC, NoRoot: o.NoRoot}
	fork := func(group int) launch.Func { return launch.Into(group, o.OpenFiles) }
	switch {
	case forks && o.Inner != nil:
		c.Launch, c.Limits = fork(o.Inner.Directory), true
	case forks:
		c.Launch, c.Limits = fork(launch.NoGroup), true
	case o.OpenFiles > 0:
		return nil, errors.New("--open-files needs the system call clone3: the kernel is older than Linux 5.5, or a container around the machine forbids the call")
	default:
		c.Launch = launch.Plain()
	}
	var own []string // mount points
	if o.NoRoot {
		own = []string{o.Workspace, "/tmp"}
	}
	var err error
	if c.Locks, err = kernelmemory.OpenLocks(); err != nil {
		return nil, err
	}
	if o.Groups != "" {
		if c.Groups, err = groups.Open(o.Groups, firstGroups, thread, fork); err != nil {
			return nil, err
		}
	}
	c.Zygote = zygoteLauncher(c, zygotes)
	starter, err := process.NewStarter(c)
	if err != nil {
		return nil, err
	}
	f, err := files.New(o.Workspace, namespaces.Home, starter.Marks(), own...)
	if err != nil {
		return nil, err
	}
	if !starter.Marks() {
		report(errors.New("the agent can't switch users: commands run as its own user, and a process that starts a new session may outlive its execution"))
	}
	// An idle runner doesn't need what prepare does, so it waits for the first command.
	h := &host{Files: f, starter: starter, threads: ofThreads(), lacksLocale: sync.OnceValue(func() bool { return lacksLocale("") }), prepare: func() {
		memory.AddProcessor()
		if c.Groups == nil {
			memory.SpareThreads(memory.BusyThreads)
		}
	}}
	if o.Image {
		h.image = thisImage(o.Workspace)
	}
	return h, nil
}
