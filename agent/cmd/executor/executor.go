// Package executor runs commands and serves files in the runner, or on the machine, that the agent is
// in. It guarantees that the agent is confined before the first command starts. Package agent is
// its protocol.
package executor

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
	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/namespaces"
	"github.com/rockpool/rockpool/agent/cmd/process"
	"github.com/rockpool/rockpool/agent/serve"
)

const firstGroups = 4

// Options configure an agent.
type Options struct {
	Workspace     string
	Groups        string // controllers whose groups of commands are inherited, as descriptors from firstGroups on; see groups.Open
	OpenFiles     int    // limit for each process of a command, 0 for the agent's own
	Degraded      bool   // serve even if parts of the confinement are unavailable
	NoRoot        bool   // no command may run as root, since root is root of the machine
	SharedNetwork bool   // the network is the machine's
	SharedIPC     bool   // other tasks share the namespace of System V objects
	Zygote        bool   // an interpreter can be preloaded (package warm)
	Task          bool   // a Nomad task: the confinement must be complete although the agent isn't PID 1
	Image         bool   // commands get this process's environment and working directory, which an image set

	Guest       *groups.GuestGroup  // the group in the runner's own kernel, nil if it has none
	RunnerGroup *groups.RunnerGroup // the whole runner's group, nil if it isn't visible
	Ready       func() error        // called when the agent can serve, unless it is nil
}

// An executor runs commands in the runner, or on the machine, that the agent is in. It implements [serve.Executor].
type executor struct {
	*files.Files
	starter *process.Starter
	image   *image   // nil if the server knows the image
	threads []string // variables for the number of threads

	lacksLocale func() bool // evaluated once

	first   sync.Once
	prepare func() // called once, before the first command
}

func (e *executor) Start(start agent.Start) (serve.Process, error) {
	e.first.Do(e.prepare)
	start = e.image.complete(start)
	start.Env = withVariables(e.withoutMissingLocale(start.Env, start.Defaults), append(ofCaches(agent.Caches), e.threads...))
	dir, err := e.WorkingDirectory(start.Dir)
	if err != nil {
		return nil, err
	}
	candidates, err := e.LookUp(start.Argv[0], dir, start.Env)
	if err != nil {
		return nil, err
	}
	return e.starter.Start(start, dir, candidates)
}

func (e *executor) Adopt(start agent.Start, cell []*os.File) (serve.Process, error) {
	return process.Adopt(start, cell)
}

func (e *executor) Now() agent.Used { return e.starter.Now() }

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

	TuneMemory()
	e, err := newExecutor(o)
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
	go e.starter.Reap(children) // until the program ends
	go func() {                 // until the program ends
		cancel(fmt.Errorf("signal: %v", <-stops))
	}()
	idle := newIdler()
	go idle.run() // until the program ends
	server := serve.New(e, serve.Config{Report: report, Idle: idle.hint})
	err = server.Serve(ctx, listener)
	server.Close()
	return err
}

func report(err error) { fmt.Fprintln(os.Stderr, "agent:", err) }

// newExecutor confines this process, and returns its executor.
func newExecutor(o Options) (*executor, error) {
	// The filter must allow the system calls that package launch needs, so this is decided first.
	forks := launch.CanFork()
	ownNetwork := os.Getpid() == 1 && o.Guest == nil && !o.Task && !o.SharedNetwork
	var connections *groups.Connections
	if ownNetwork {
		var err error
		if connections, err = groups.OpenConnections(); err != nil { // before the filter forbids it
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
		spareThreads(usualThreads)
	}
	c := process.Config{Thread: thread, Guest: o.Guest, RunnerGroup: o.RunnerGroup, Connections: connections, OwnIPC: groups.OwnsIPC() && !o.SharedIPC, NoRoot: o.NoRoot}
	fork := func(group int) launch.Func { return launch.Into(group, o.OpenFiles) }
	switch {
	case forks && o.Guest != nil:
		c.Launch, c.Limits = fork(o.Guest.Directory), true
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
	if c.Locks, err = groups.OpenLocks(); err != nil {
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
	e := &executor{Files: f, starter: starter, threads: ofThreads(), lacksLocale: sync.OnceValue(func() bool { return lacksLocale("") }), prepare: func() {
		addProcessor()
		if c.Groups == nil {
			spareThreads(busyThreads)
		}
	}}
	if o.Image {
		e.image = thisImage(o.Workspace)
	}
	return e, nil
}
