package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A task of Nomad's driver raw_exec has the machine itself around it: its
// processes, its files, other tasks. There the agent starts itself once more, in
// namespaces of its own, and that one serves. So a runner is whole for what is
// inside: /workspace is there, ids of executions are its own, no process of
// others is seen, and all of it ends with the agent, however that ends.
//
// It is no isolation of which much may be asked: user code reads what every user
// of the machine may read, and has its network unless --no-network is said. But
// it is none of these users, and no command may be root there.
const nestedCommand = "nested"

// nestedListener is the descriptor that the nested agent gets.
const nestedListener = 3

// mustNest reports whether the agent is a task without namespaces of its own.
func mustNest() bool { return os.Getpid() != 1 && os.Geteuid() == 0 && can(unix.CAP_SYS_ADMIN) }

// nest starts the nested agent, and ends with it.
func nest(listener *net.UnixListener, workspace string, network bool) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	socket, err := listener.File()
	if err != nil {
		return err
	}
	flags := unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC
	args := []string{"agent", nestedCommand, "--workspace", workspace}
	if !network {
		flags |= unix.CLONE_NEWNET
		args = append(args, "--no-network")
	}
	users := nestedUsers()
	runtime.LockOSThread() // for the parent-death signal, which is a thread's
	pid, err := syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"},
		Files: []uintptr{0, 1, 2, socket.Fd()},
		Sys: &syscall.SysProcAttr{
			Cloneflags: uintptr(flags), UidMappings: users, GidMappings: users, GidMappingsEnableSetgroups: true,
			Credential: &syscall.Credential{}, Pdeathsig: syscall.SIGKILL,
		},
	})
	if err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	_ = socket.Close()
	_ = listener.Close()
	go func() { // for as long as the program runs
		for range signals {
			_ = unix.Kill(pid, unix.SIGTERM)
		}
	}()
	tuneMemory()
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err == unix.EINTR {
			continue
		} else if err != nil {
			return err
		}
		if status.Signaled() {
			return fmt.Errorf("the nested agent was ended by %s", signalName(status.Signal()))
		}
		return fmt.Errorf("the nested agent ended with exit code %d", status.ExitStatus())
	}
}

// nestedUsers maps the users of a nested runner: root is the machine's, all
// others are nobody there. The first person who works on a machine is usually
// 1000, as whom commands run here. Where those ids can't be had, in a user
// namespace of the task's own, they are the same as outside.
func nestedUsers() []syscall.SysProcIDMap {
	const away = 900_000_000 // below what a local runner may have
	if last := uint32(away + 1<<16 - 1); !mapped("/proc/self/uid_map", last) || !mapped("/proc/self/gid_map", last) {
		return []syscall.SysProcIDMap{{Size: 1 << 16}}
	}
	return []syscall.SysProcIDMap{{Size: 1}, {ContainerID: 1, HostID: away + 1, Size: 1<<16 - 1}}
}

// becomeNested is the nested agent.
func becomeNested(workspace string, network bool) error {
	if os.Getpid() != 1 {
		return errors.New(usage)
	}
	if !network {
		if err := raiseLoopback(); err != nil {
			return fmt.Errorf("lo: %w", err)
		}
	}
	if err := enterRoot(workspace); err != nil {
		return err
	}
	file := os.NewFile(nestedListener, "listener")
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	_ = file.Close()
	return serveOn(peerListener{listener.(*net.UnixListener)}, options{workspace: runnerWorkspace, noRoot: true, shares: network})
}

// raiseLoopback makes a new network namespace's only interface work.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
