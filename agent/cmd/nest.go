package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/executor"
	"github.com/rockpool/rockpool/agent/cmd/namespaces"
)

// nested is the argument that makes this program call [serveNested]. A task of Nomad's driver
// raw_exec sees the machine itself: its processes, its files, and other tasks. One of the driver
// exec has directories without a limit. There the agent starts itself again in namespaces of its
// own, and the second one serves.
const nested = "nested"

// mustNest reports whether the agent is a task without namespaces of its own.
func mustNest() bool {
	return os.Getpid() != 1 && os.Geteuid() == 0 && confinement.Can(unix.CAP_SYS_ADMIN)
}

// nest starts the nested agent, and returns when that has ended, always with an error.
func nest(kind namespaces.Kind, listener *net.UnixListener, network bool, args ...string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	socket, err := listener.File()
	if err != nil {
		return err
	}
	args = append([]string{"agent", nested}, args...)
	if !network {
		args = append(args, "--no-network")
	}
	pid, err := namespaces.Start(kind, socket, network, args...)
	if err != nil {
		return err
	}
	// The nested agent has inherited the socket.
	_ = socket.Close()
	_ = listener.Close()
	go func() { // until the program ends
		for range signals {
			_ = unix.Kill(pid, unix.SIGTERM)
		}
	}()
	executor.TuneMemory()
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err == unix.EINTR {
			continue
		} else if err != nil {
			return err
		}
		if status.Signaled() {
			return fmt.Errorf("the nested agent was killed by %v", status.Signal())
		}
		return fmt.Errorf("the nested agent exited with code %d", status.ExitStatus())
	}
}

// serveNested serves as the nested agent. With mib it enters [namespaces.Directories], whose
// workspace is in memory; otherwise it enters [namespaces.Machine], whose workspace is a directory
// of the machine. It always returns an error.
func serveNested(workspace string, network bool, mib, processes int, o executor.Options) error {
	var err error
	switch {
	case mib > 0:
		// This comes before the new root, which covers the mounts of the groups.
		o.RunnerGroup = limitOwnGroup(processes)
		err = namespaces.EnterDirectories(mib)
		o.Task = true
	case os.Getpid() != 1:
		return errors.New("nested: this command is internal: only the agent itself may start it")
	default:
		err = namespaces.EnterMachine(workspace, network)
		o.NoRoot, o.SharedNetwork = true, network
	}
	if err != nil {
		return err
	}
	file := os.NewFile(namespaces.Listener, "listener")
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	_ = file.Close()
	o.Workspace = namespaces.Workspace
	return executor.Serve(executor.OwnUser(listener.(*net.UnixListener)), o)
}
