package task

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/host"
	"github.com/rockpool/rockpool/agent/cmd/memory"
	"github.com/rockpool/rockpool/agent/cmd/namespaces"
	"github.com/rockpool/rockpool/agent/cmd/peer"
)

// Nested is the argument that makes this program call [ServeNested]. A task of Nomad's driver
// raw_exec has the machine itself around it: its processes, its files, other tasks. One of the
// driver exec has directories without a bound. There the agent starts itself once more, in
// namespaces of its own, and that one serves.
const Nested = "nested"

// mustNest reports whether the agent is a task without namespaces of its own.
func mustNest() bool {
	return os.Getpid() != 1 && os.Geteuid() == 0 && confinement.Can(unix.CAP_SYS_ADMIN)
}

// nest starts the nested agent, and ends with it.
func nest(kind namespaces.Kind, listener *net.UnixListener, network bool, args ...string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	socket, err := listener.File()
	if err != nil {
		return err
	}
	args = append([]string{"agent", Nested}, args...)
	if !network {
		args = append(args, "--no-network")
	}
	pid, err := namespaces.Start(kind, socket, network, args...)
	if err != nil {
		return err
	}
	_ = socket.Close()
	_ = listener.Close()
	go func() { // for as long as the program runs
		for range signals {
			_ = unix.Kill(pid, unix.SIGTERM)
		}
	}()
	memory.Tune()
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err == unix.EINTR {
			continue
		} else if err != nil {
			return err
		}
		if status.Signaled() {
			return fmt.Errorf("the nested agent was ended by %v", status.Signal())
		}
		return fmt.Errorf("the nested agent ended with exit code %d", status.ExitStatus())
	}
}

// ServeNested serves as the nested agent: on the machine, with a directory of it as the workspace, or
// with one in memory of so many MiB.
func ServeNested(workspace string, network bool, mib, processes int, o host.Options) error {
	var err error
	switch {
	case mib > 0:
		o.Whole = limitOwnGroup(processes)
		err = namespaces.EnterDirectories(mib)
		o.Task = true
	case os.Getpid() != 1:
		return errors.New("nested: only the agent starts this")
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
	return host.Serve(peer.OwnUser(listener.(*net.UnixListener)), o)
}
