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
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

const usage = `usage: agent serve [--fd N] [--workspace DIR] [--degraded]   serve the inherited listening socket N (3)
       agent version                                         tell what this is`

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
	switch args[0] {
	case "serve":
		flags := flag.NewFlagSet("serve", flag.ContinueOnError)
		fd := flags.Int("fd", 3, "the inherited listening socket")
		workspace := flags.String("workspace", "/workspace", "where relative paths begin")
		degraded := flags.Bool("degraded", false, "serve as PID 1 although some confinement can't be had")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return listen(*fd, *workspace, *degraded)
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

func listen(fd int, workspace string, degraded bool) error {
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
	launcher, gaps := confine()
	if len(gaps) > 0 {
		err := fmt.Errorf("confinement: %w", errors.Join(gaps...))
		if os.Getpid() == 1 && !degraded {
			return err // a runner that isn't what it should be is refused
		}
		fmt.Fprintln(os.Stderr, "agent:", err)
	}
	spareThreads()

	file := os.NewFile(uintptr(fd), "listener")
	listener, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w", fd, err)
	}
	_ = file.Close()
	host, err := newHost(workspace, launcher)
	if err != nil {
		return err
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
