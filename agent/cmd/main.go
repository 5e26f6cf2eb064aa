// The agent is the one program of ours inside a runner. It starts, feeds,
// watches and ends what runs there, and reads and writes its files, for the
// server at the other end of an inherited socket (package agent is their
// protocol). In a local runner it is PID 1. It guarantees that user code gets
// none of its privileges, and that nothing of an execution is left behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

const usage = `usage: agent serve [--fd N] [--workspace DIR] [--degraded] [--groups CONTROLLER,…] [--open-files N]
                                                             serve the inherited listening socket N (3)
       agent serve --outside PATH [--processes N] [--workspace DIR]
                                                             serve, in a runner with a kernel of its own, on a
                                                             socket at PATH that only the machine can use
       agent serve --socket PATH [--workspace DIR] [--degraded] [--no-network] [--shared-ipc]
                                                             serve as a task of Nomad's, on a socket at PATH
       agent bridge [--socket PATH]                          carry streams between stdin and stdout and that socket
                                                             ($NOMAD_SECRETS_DIR/agent.sock)
       agent version                                         tell what this is`

// runnerWorkspace is where the workspace is in a runner, by contract.
const runnerWorkspace = "/workspace"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	switch args[0] {
	case "serve":
		var o options
		fd := flags.Int("fd", 3, "the inherited listening socket")
		socket := flags.String("socket", "", "make a listening socket here instead, in a directory that becomes the agent's alone")
		flags.StringVar(&o.workspace, "workspace", runnerWorkspace, "where relative paths begin; made with --socket")
		flags.BoolVar(&o.degraded, "degraded", false, "serve although some confinement can't be had")
		flags.StringVar(&o.groups, "groups", "", "the controllers whose directories of groups for commands are the descriptors from 4 on; unified: it is one, of version 2 of cgroups")
		network := flags.Bool("no-network", false, "have no network; only where the agent makes its own namespaces")
		flags.BoolVar(&o.sharesIPC, "shared-ipc", false, "leave shared memory, semaphores and queues of System V: other tasks have the same")
		outside := flags.String("outside", "", "make a listening socket here instead, for who isn't of this kernel")
		flags.IntVar(&o.files, "open-files", 0, "have each process of a command have at most so many open files; 0: as many as the agent")
		processes := flags.Int("processes", 0, "with --outside: have the kernel limit processes and threads, the agent's included")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if *outside != "" {
			return serveOutside(*outside, *processes, o)
		}
		if *socket != "" {
			return serveAt(*socket, o, !*network)
		}
		return serveInherited(*fd, o)
	case nestedCommand:
		workspace := flags.String("workspace", "", "")
		network := flags.Bool("no-network", false, "")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return becomeNested(*workspace, !*network)
	case "bridge":
		// Nomad puts variables of a task into its arguments, but not into an exec's.
		socket := flags.String("socket", filepath.Join(os.Getenv("NOMAD_SECRETS_DIR"), "agent.sock"), "where the agent listens")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return runBridge(*socket)
	case limitCommand:
		return becomeLimited(args[1:])
	case "version":
		fmt.Println(version(), "protocol", agent.Protocol)
		return nil
	default:
		return errors.New(usage)
	}
}

// version is the commit that this was built from, where the build knew it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "development"
}

// firstGroups is the first descriptor of --groups.
const firstGroups = 4

// options say how an agent serves.
type options struct {
	workspace string
	groups    string // controllers whose groups of commands are inherited, from the descriptor after the listener's on; or unifiedGroups
	files     int    // that a process of a command can have open; 0: as many as the agent
	degraded  bool   // also without some of the confinement
	noRoot    bool   // no command may be root
	shares    bool   // the network is the machine's
	sharesIPC bool   // the namespace of what System V has is another task's, too
	task      bool   // a task of Nomad's, where the confinement must hold whoever is PID 1

	inner *innerCounts // nil: the machine counts forks that are refused
	ready func() error // called when it is known that it can serve; nil: nobody waits
}

func serveInherited(fd int, o options) error {
	file := os.NewFile(uintptr(fd), "listener")
	listener, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w", fd, err)
	}
	_ = file.Close()
	if err := openToAll(o.workspace, "/tmp", "/dev/shm"); err != nil {
		return err
	}
	return serveOn(listener, o)
}

// openToAll lets every user write to directories. Older versions of runc give them
// the mode of what they are mounted on.
func openToAll(directories ...string) error {
	const sticky = 0o1777
	for _, dir := range directories {
		var stat unix.Stat_t
		if os.Getpid() != 1 || unix.Stat(dir, &stat) != nil || stat.Mode&0o7777 == sticky {
			continue
		}
		if err := unix.Chmod(dir, sticky); err != nil {
			return &os.PathError{Op: "chmod", Path: dir, Err: err}
		}
	}
	return nil
}

// serveAt serves as a task of Nomad's.
func serveAt(socket string, o options, network bool) error {
	workspace, err := filepath.Abs(o.workspace)
	if err != nil {
		return err
	}
	o.workspace, o.task = workspace, true
	if err := errors.Join(becomeRoot(), makeWorkspace(workspace), protect(workspace)); err != nil {
		return err
	}
	listener, err := listenAt(socket)
	if err != nil {
		return err
	}
	if err := endWhenOrphaned(socket); err != nil {
		return err
	}
	if mustNest() {
		return nest(listener, workspace, network)
	}
	if !network {
		return errors.New("--no-network: only root of the machine, as with the driver raw_exec, can make a network namespace; elsewhere it is the driver's setting")
	}
	return serveOn(peerListener{listener}, o)
}

// serveOn serves until the listener fails or a signal ends it.
func serveOn(listener net.Listener, o options) error {
	// Whatever descriptors were inherited, commands get none of them.
	if err := unix.CloseRange(3, 1<<20, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	// Before anything can be started, or its end could be missed.
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTERM, syscall.SIGINT)

	tuneMemory()
	forks := o.inner == nil && canFork()
	ownNetwork := os.Getpid() == 1 && o.inner == nil && !o.task && !o.shares
	var network *connections
	if ownNetwork {
		var err error
		if network, err = openConnections(); err != nil { // before the filter
			return err
		}
	}
	launcher, gaps := confine(forks, ownNetwork)
	if len(gaps) > 0 {
		err := fmt.Errorf("confinement: %w", errors.Join(gaps...))
		if (os.Getpid() == 1 || o.task) && !o.degraded {
			return err // a runner that isn't what it should be is refused
		}
		fmt.Fprintln(os.Stderr, "agent:", err)
	}
	spareThreads(threads)

	host, err := newHost(o.workspace, launcher)
	if err != nil {
		return err
	}
	host.noRoot, host.inner, host.connections = o.noRoot, o.inner, network
	host.ownIPC = ownsIPC() && !o.sharesIPC
	fork := func(group int) forkExec { return forkInto(group, o.files) }
	switch {
	case forks:
		host.fork = fork(noGroup)
	case host.inner != nil: // whose kernel kills nobody for memory: the machine's does
		host.fork = syscall.ForkExec
	case o.files > 0:
		return errors.New("--open-files needs clone3: the kernel is older than Linux 5.5, or a container around the machine refuses it")
	}
	if o.noRoot { // whose root is the machine's
		if host.foreign, err = foreignTo(o.workspace, "/tmp"); err != nil {
			return err
		}
	}
	if o.groups != "" {
		if host.groups, err = openGroups(o.groups, firstGroups, launcher, fork); err != nil {
			return err
		}
	}
	if o.ready != nil {
		if err := o.ready(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go host.reaper.run(children) // for as long as the program runs
	go func() {                  // likewise
		cancel(fmt.Errorf("signal: %v", <-stops))
	}()
	idle := newIdler()
	go idle.run() // likewise
	server := serve.New(host, serve.Config{
		Version: version(),
		Report:  func(err error) { fmt.Fprintln(os.Stderr, "agent:", err) },
		Idle:    idle.hint,
	})
	err = server.Serve(ctx, listener)
	server.Close()
	return err
}
