// Package namespaces gives the agent namespaces of its own inside its task.
//
// A task of Nomad's driver raw_exec has the machine itself around it ([Machine]). With namespaces a
// runner is whole for its programs: /workspace is there, ids of executions are its own, no
// process of others is visible, and all of it ends with the agent, however that ends. It is
// weak isolation: user code reads what every user of the machine may read, and has the machine's
// network unless Start was called without it. But it is none of the machine's users, and none
// of its commands may be root.
//
// A task of the driver exec has most of that already, but every directory of Nomad's in it is on
// the node's disk, without a bound. There the agent makes a root that is read-only, and file systems
// in memory with a bound for what programs write ([Directories]).
package namespaces

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// Workspace is where the workspace is in a runner, by contract.
const Workspace = "/workspace"

// Listener is the descriptor that a nested agent inherits.
const Listener = 3

// A Kind is what namespaces are for.
type Kind uintptr

// The kinds, by what a nested agent gets of its own.
const (
	Machine     Kind = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID
	Directories Kind = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP
)

// Start executes this program once more, with these arguments, in namespaces of its own. It
// inherits a socket as [Listener], and ends with this process. The caller stays on one thread
// from then on.
func Start(kind Kind, socket *os.File, network bool, args ...string) (pid int, err error) {
	flags := kind
	if !network {
		flags |= unix.CLONE_NEWNET
	}
	users := mapUsers()
	runtime.LockOSThread() // for the parent-death signal, which is a thread's
	pid, err = syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"},
		Files: []uintptr{0, 1, 2, socket.Fd()},
		Sys: &syscall.SysProcAttr{
			Cloneflags: uintptr(flags), UidMappings: users, GidMappings: users, GidMappingsEnableSetgroups: true,
			Credential: &syscall.Credential{}, Pdeathsig: syscall.SIGKILL,
		},
	})
	if err != nil {
		return 0, fmt.Errorf("namespaces: %w", err)
	}
	return pid, nil
}

// EnterMachine completes the namespaces of [Machine], from inside: the loopback interface of a
// network of their own, and a root with a directory of the machine as [Workspace].
func EnterMachine(workspace string, network bool) error {
	if !network {
		if err := RaiseLoopback(); err != nil {
			return fmt.Errorf("lo: %w", err)
		}
	}
	return enterMachine(workspace)
}

// mapUsers maps the users of a nested runner: root is the machine's, all others are nobody
// there. The first person who works on a machine is usually 1000, the user of commands here.
// Where those ids are unavailable, in a user namespace of the task's own, users are the same as
// outside.
func mapUsers() []syscall.SysProcIDMap {
	const away = 900_000_000 // below what a local runner may have
	if last := uint32(away + 1<<16 - 1); !proc.Mapped("/proc/self/uid_map", last) || !proc.Mapped("/proc/self/gid_map", last) {
		return []syscall.SysProcIDMap{{Size: 1 << 16}}
	}
	return []syscall.SysProcIDMap{{Size: 1}, {ContainerID: 1, HostID: away + 1, Size: 1<<16 - 1}}
}

// RaiseLoopback brings up a new network namespace's only interface.
func RaiseLoopback() error {
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
