package main

import (
	"maps"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A call is one system call with harmless arguments. If the filter allows it, most kernels return
// another error than a refusal.
type call func() error

// raw returns a call by its number, with up to six arguments. It bypasses the checks of Go's
// wrappers.
func raw(number uintptr, args ...uintptr) call {
	return func() error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
}

// text returns the address of a NUL-terminated copy of s.
func text(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		return 0
	}
	keep = append(keep, p)
	return uintptr(unsafe.Pointer(p))
}

// keep references memory that only the kernel uses, so that it isn't garbage collected.
var keep []*byte

// buffer returns the address of size zero bytes.
func buffer(size int) uintptr {
	b := make([]byte, size)
	keep = append(keep, &b[0])
	return uintptr(unsafe.Pointer(&b[0]))
}

// word returns the address of 32 words, which begin with values and end with zeros. The calls use
// it for structures.
func word(values ...uint64) uintptr {
	b := make([]uint64, 32)
	copy(b, values)
	p := (*byte)(unsafe.Pointer(&b[0]))
	keep = append(keep, p)
	return uintptr(unsafe.Pointer(p))
}

const (
	noDir     = ^uintptr(0) // descriptor -1
	bigBuffer = 4096
)

func socket(family, kind, protocol int) call {
	return func() error {
		fd, err := unix.Socket(family, kind, protocol)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
}

// own is the id of this process. An attacker could use another one instead.
var own = uintptr(os.Getpid())

// calls returns the calls of `prober call NAME`. Calls through other system call entries are in
// files per architecture.
func calls() map[string]call {
	all := map[string]call{
		// Mounts, roots and namespaces.
		"mount":          raw(unix.SYS_MOUNT, text("none"), text("/tmp"), text("tmpfs"), 0, 0),
		"bind":           raw(unix.SYS_MOUNT, text("/proc"), text("/tmp"), 0, unix.MS_BIND, 0),
		"remount":        raw(unix.SYS_MOUNT, 0, text("/"), 0, unix.MS_REMOUNT|unix.MS_BIND, 0),
		"umount":         raw(unix.SYS_UMOUNT2, text("/proc"), unix.MNT_DETACH),
		"pivot_root":     raw(unix.SYS_PIVOT_ROOT, text("/"), text("/tmp")),
		"chroot":         raw(unix.SYS_CHROOT, text("/tmp")),
		"open_tree":      raw(unix.SYS_OPEN_TREE, unixAt, text("/"), unix.OPEN_TREE_CLONE),
		"fsopen":         raw(unix.SYS_FSOPEN, text("tmpfs"), 0),
		"unshare":        raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		"unshare-net":    raw(unix.SYS_UNSHARE, unix.CLONE_NEWNET),
		"clone-user":     func() error { return cloneWith(unix.CLONE_NEWUSER) },
		"clone3":         raw(unix.SYS_CLONE3, 0, 0),
		"setns":          opened(func() (int, error) { return unix.Open("/proc/self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0) }, enter),
		"mknod-disk":     raw(unix.SYS_MKNODAT, unixAt, text("/workspace/disk"), unix.S_IFBLK|0o666, 8<<8),
		"mknod-mem":      raw(unix.SYS_MKNODAT, unixAt, text("/workspace/mem"), unix.S_IFCHR|0o666, 1<<8|1),
		"open_by_handle": raw(unix.SYS_OPEN_BY_HANDLE_AT, unixAt, word(8|1<<32), 0),
		"name_to_handle": raw(unix.SYS_NAME_TO_HANDLE_AT, unixAt, text("/"), word(120), word(), 0),
		// Users and capabilities.
		"setuid":    raw(unix.SYS_SETUID, 0),
		"setgid":    raw(unix.SYS_SETGID, 0),
		"setgroups": raw(unix.SYS_SETGROUPS, 0, 0),
		"capset":    capset,
		// Other processes.
		"ptrace":            raw(unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1, 0, 0),
		"ptrace-seize":      raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0),
		"process_vm_readv":  raw(unix.SYS_PROCESS_VM_READV, 1, word(), 1, word(), 1, 0),
		"process_vm_writev": raw(unix.SYS_PROCESS_VM_WRITEV, 1, word(), 1, word(), 1, 0),
		"kcmp":              raw(unix.SYS_KCMP, own, own, 0, 0, 0),
		"pidfd_getfd":       opened(func() (int, error) { return unix.PidfdOpen(1, 0) }, copyDescriptor),
		"kill-agent":        raw(unix.SYS_KILL, 1, uintptr(unix.SIGKILL)),
		"stop-agent":        raw(unix.SYS_KILL, 1, uintptr(unix.SIGSTOP)),
		"renice-agent":      raw(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 1, 19),
		"prlimit-agent":     raw(unix.SYS_PRLIMIT64, 1, unix.RLIMIT_NOFILE, word(1, 1), 0),
		// Subsystems with a history of vulnerabilities.
		"keyctl":        raw(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, keyringSession, 1),
		"add_key":       raw(unix.SYS_ADD_KEY, text("user"), text("rockpool-attack"), text("x"), 1, keyringSession),
		"request_key":   raw(unix.SYS_REQUEST_KEY, text("user"), text("rockpool-attack"), 0, 0),
		"bpf":           raw(unix.SYS_BPF, 0, word(2|4<<32, 8|1<<32), 72),
		"io_uring":      raw(unix.SYS_IO_URING_SETUP, 4, buffer(bigBuffer)),
		"perf":          raw(unix.SYS_PERF_EVENT_OPEN, word(1|120<<32), 0, noDir, noDir, 0),
		"userfaultfd":   raw(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly),
		"fanotify":      raw(unix.SYS_FANOTIFY_INIT, 0x200, 0),
		"vmsplice":      raw(unix.SYS_VMSPLICE, 1, word(), 0, 0),
		"kexec":         raw(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0),
		"init_module":   raw(unix.SYS_INIT_MODULE, 0, 0, 0),
		"reboot":        raw(unix.SYS_REBOOT, 0, 0, 0, 0),
		"swapon":        raw(unix.SYS_SWAPON, text("/workspace/none"), 0),
		"acct":          raw(unix.SYS_ACCT, text("/workspace/none")),
		"settimeofday":  raw(unix.SYS_SETTIMEOFDAY, 0, 0),
		"clock_settime": raw(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, word(1)),
		"sethostname":   raw(unix.SYS_SETHOSTNAME, text("attacked"), 8),
		"syslog":        raw(unix.SYS_SYSLOG, 3, buffer(bigBuffer), bigBuffer),
		"quotactl":      raw(unix.SYS_QUOTACTL, 0, 0, 0, 0),
		"mbind":         raw(unix.SYS_MBIND, 0, 0, 0, 0, 0, 0),
		"sync":          raw(unix.SYS_SYNC),
		"cachestat":     raw(unix.SYS_CACHESTAT, 0, word(), word(), 0),
		"memfd_secret":  raw(unix.SYS_MEMFD_SECRET, 0),
		"tiocsti":       raw(unix.SYS_IOCTL, 0, unix.TIOCSTI, text("#")),       // injects input into its own terminal
		"tiocsti-high":  raw(unix.SYS_IOCTL, 0, unix.TIOCSTI|1<<32, text("#")), // with a bit that the kernel ignores (CVE-2019-7303)
		"unknown":       raw(100_000),
		// Socket families that network namespaces don't isolate.
		"vsock":          socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"alg":            socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
		"packet":         socket(unix.AF_PACKET, unix.SOCK_RAW, 0),
		"raw-socket":     socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
		"netlink-audit":  socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT),
		"netlink-filter": socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER),
		// Resources that are charged to the machine.
		"mq_open": raw(unix.SYS_MQ_OPEN, text("rockpool-attack"), unix.O_RDWR|unix.O_CREAT, 0o600, 0),
		"mlock":   mlock,
	}
	maps.Copy(all, accountCalls())
	maps.Copy(all, foreign)
	return all
}

const unixAt = ^uintptr(99) // AT_FDCWD

const userModeOnly = 1 // flag of userfaultfd that every user may set

const keyringSession = ^uintptr(2) // KEY_SPEC_SESSION_KEYRING, -3

func tryCall(names []string) {
	all := calls()
	for _, name := range names {
		c, known := all[name]
		if !known {
			say(name, "is unknown here")
			continue
		}
		say(name, result(c()))
	}
}

func cloneWith(flags uintptr) error {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	switch {
	case errno != 0:
		return errno
	case pid == 0:
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return nil
}

// enter enters a namespace in which this process already is: it changes nothing if it is allowed.
func enter(namespace int) error { return unix.Setns(namespace, 0) }

// capset tries to give this thread CAP_SYS_ADMIN.
func capset() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	data[0].Effective, data[0].Permitted = 1<<unix.CAP_SYS_ADMIN, 1<<unix.CAP_SYS_ADMIN
	return unix.Capset(&header, &data[0])
}

// copyDescriptor tries to copy descriptor 0 of a process.
func copyDescriptor(process int) error {
	_, err := unix.PidfdGetfd(process, 0, 0)
	return err
}

// mlock locks 1 MiB of memory, which the kernel can't swap out then.
func mlock() error {
	const size = 1 << 20
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	return unix.Mlock(memory)
}
