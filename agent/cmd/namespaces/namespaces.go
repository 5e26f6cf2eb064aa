// Package namespaces isolates an agent inside its Nomad task by namespaces of its own. It
// guarantees that commands see no processes and ids of other runners, and that everything in the
// namespaces ends with the agent, however that ends.
//
// A task of Nomad's driver raw_exec runs on the machine itself ([Machine]). The namespaces give its
// programs a complete runner with /workspace. The isolation is weak: user code can read everything
// that every user of the machine can read. It uses the machine's network, unless Start was called
// without it. But it runs as no user of the machine, and none of its commands may be root.
//
// A task of the driver exec has most of this already. However, all of Nomad's directories in it are
// on the node's disk, without a limit. There the agent makes the root read-only, and mounts file
// systems in memory, with a limit, for the files that programs write ([Directories]).
package namespaces

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// Workspace is the path of the workspace in every runner. It is part of the API.
const Workspace = "/workspace"

// Home is the home directory of the user of commands in every runner: runtime.Home, which the
// agent may not import.
const Home = "/tmp/home"

// Listener is the descriptor of the socket that a nested agent inherits.
const Listener = 3

// A Kind is a set of namespaces, as flags of clone(2).
type Kind uintptr

// The kinds, by the task that a nested agent runs in.
const (
	Machine     Kind = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID
	Directories Kind = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP
)

// Start executes this program again, with these arguments, in new namespaces. The child inherits
// socket as [Listener]. It is killed when this process ends. The calling goroutine stays locked to
// its thread afterwards, because the kernel sends that signal when the thread ends.
func Start(kind Kind, socket *os.File, network bool, args ...string) (pid int, err error) {
	flags := kind
	if !network {
		flags |= unix.CLONE_NEWNET
	}
	users := mapUsers()
	runtime.LockOSThread() // the parent-death signal depends on this thread
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

// mapUsers returns the map of the ids of a nested runner. Root is the machine's root. All others
// are mapped to ids that nobody has on the machine: the first person who works on it is usually
// 1000, which is the user of commands here. If those ids are unavailable, since the task has a user
// namespace already, ids are the same inside and outside.
func mapUsers() []syscall.SysProcIDMap {
	const away = 900_000_000 // an offset below the range of local runners
	if last := uint32(away + 1<<16 - 1); !proc.Mapped("/proc/self/uid_map", last) || !proc.Mapped("/proc/self/gid_map", last) {
		return []syscall.SysProcIDMap{{Size: 1 << 16}}
	}
	return []syscall.SysProcIDMap{{Size: 1}, {ContainerID: 1, HostID: away + 1, Size: 1<<16 - 1}}
}

// RaiseLoopback brings up the loopback interface, the only one of a new network namespace.
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
