// Package confinement removes from this process, and from everything that it starts, what user code
// must not have: capabilities, new privileges, dangerous system calls, and core files. It
// guarantees the same for commands that run as root of the runner.
package confinement

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rootCapabilities are the only capabilities that a privileged command can have: enough to work
// with the runner's files and processes. Without CAP_SETGID the command can't leave its execution's
// group. Without CAP_SYS_PTRACE it can't read the agent, which isn't dumpable. All of them apply to
// the runner's user namespace only.
var rootCapabilities = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_KILL}

// Apply confines this process. It must be called once, before any command starts. It returns the
// thread that starts the user's commands and, if zygote is set, the thread that starts a zygote
// (nil if it is impossible). Gaps are the parts of the confinement that are unavailable. With forks
// the agent keeps the system calls that package launch needs. With ownNetwork the network namespace
// belongs to this runner alone, and the agent counts its netlink sockets.
func Apply(forks, ownNetwork, zygote bool) (t, zygotes *Thread, gaps []error) {
	try := func(what string, err error) {
		if err != nil {
			gaps = append(gaps, fmt.Errorf("%s: %w", what, err))
		}
	}
	// No program may read the agent's memory, nor that of a child that shares it before its exec.
	try("not dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	if os.Getpid() != 1 {
		// PID 1 inherits orphans anyway.
		try("child subreaper", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	}
	unix.Umask(0o022)
	try("no core files", refuseCores())
	try("ambient capabilities", clearAmbient())
	try("capabilities", keepCapabilities())
	t, err := NewThread(false)
	// This comes before the bounding set is emptied: see newZygoteThread.
	if zygote && Can(unix.CAP_SETUID) && Can(unix.CAP_SETGID) && Can(unix.CAP_SETPCAP) {
		if thread, err := newZygoteThread(); err == nil {
			zygotes = thread
		} else {
			thread.End()
		}
	}
	if Can(unix.CAP_SETPCAP) || os.Geteuid() == 0 { // other users gain no capability by an exec anyway
		try("bounding capabilities", dropBounding(allThreads, rootCapabilities...))
		try("bounding capabilities of commands", err)
	}
	// Without CAP_SYS_ADMIN a filter needs no_new_privs (seccomp(2)), so this comes first.
	try("no new privileges", refusePrivileges())
	try("seccomp", loadFilters(forks, ownNetwork))
	return t, zygotes, gaps
}

// clearAmbient empties the set of ambient capabilities. A call for all threads stops every thread
// of the program. The maker of a local runner has confined the agent already. Then reading the set
// is enough, since threads inherit it.
func clearAmbient() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) == nil && data[0].Inheritable|data[1].Inheritable == 0 {
		return nil // a capability is ambient only if it is inheritable
	}
	return allThreads(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0)
}

// refusePrivileges sets no_new_privs, so that no exec gains privileges by set-user-ID bits or file
// capabilities. Children inherit it.
func refusePrivileges() error {
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && set == 1 {
		return nil
	}
	return allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
}

// refuseCores makes the kernel write no core files. A limit of 1 byte also prevents that the kernel
// pipes cores to a program; a limit of 0 doesn't (core(5)). A limit that was 0 before can't be
// raised.
func refuseCores() error {
	err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
	if err == unix.EPERM {
		return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	}
	return err
}

// ownCapabilities are all that the agent keeps if it had more.
var ownCapabilities = append([]uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP}, rootCapabilities...)

// keepCapabilities empties the inheritable set, and drops the capabilities that the agent doesn't
// need.
func keepCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	var keep [2]uint32
	for _, c := range ownCapabilities {
		keep[c/32] |= 1 << (c % 32)
	}
	had := data
	for i := range data {
		data[i].Inheritable = 0
		data[i].Permitted &= keep[i]
		data[i].Effective &= keep[i]
	}
	if data == had {
		return nil
	}
	return allThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
}

// dropBounding drops all capabilities except keep from the bounding set, so that no exec can gain
// another one.
func dropBounding(call func(trap, a, b, c uintptr) error, keep ...uintptr) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(keep, c) {
			continue
		}
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil || has == 0 {
			continue
		}
		if err := call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
			return err
		}
	}
	return nil
}

// allThreads makes a system call on every thread, for calls that affect only the calling thread.
// New threads inherit the effect.
func allThreads(trap, a, b, c uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(trap, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// thisThread makes a system call for the calling thread only.
func thisThread(trap, a, b, c uintptr) error {
	if _, _, errno := unix.Syscall6(trap, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// Can reports whether the agent has a capability.
func Can(capability int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}
