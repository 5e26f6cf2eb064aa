package main

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter is written out rather than made by go-seccomp-bpf, which lets
// every call of a foreign architecture (int 0x80) through a list of what is
// denied, and compares all 64 bits of an argument of which the kernel reads 32,
// as in CVE-2019-7303.

// Offsets in struct seccomp_data, of a little-endian machine.
const (
	dataNumber       = 0
	dataArchitecture = 4
	dataArgument0    = 16 // low half; each has 8 bytes
	dataArgument1    = 24
	dataArgument2    = 32
)

const (
	killProcess = unix.SECCOMP_RET_KILL_PROCESS
	allow       = unix.SECCOMP_RET_ALLOW
	refuse      = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	unknown     = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	noFamily    = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)

	// Each kind of namespace that clone can make.
	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// denyList is what user code in a runner may not call: all that isn't known
// here, and of what is known what is denied. It has no capability for most of it
// either; the rest has been the way into many kernels. docs/security.md lists it.
// The agent itself needs clone3 where it starts commands with that (forkInto), and
// refuses it to each of these then.
func denyList(clone3 bool) []unix.SockFilter {
	p := program{code: make([]unix.SockFilter, 0, 256)} // an idle agent keeps each size that it ever allocated
	p.load(dataArchitecture)
	p.unless(architecture, killProcess)
	p.load(dataNumber)
	if runtime.GOARCH == "amd64" {
		const x32 = 0x40000000
		p.code = append(p.code, jump(unix.BPF_JGE, x32, 0, 1), ret(killProcess))
	}
	// What came to kernels after this list was looked through: programs have to do
	// without, as on a kernel that doesn't have it.
	p.code = append(p.code, jump(unix.BPF_JGT, lastKnown, 0, 1), ret(unknown))
	for _, number := range denied {
		p.when(number, ret(refuse))
	}
	// Its flags lie in memory, where a filter can't look: C libraries fall back
	// to clone.
	if !clone3 {
		p.when(unix.SYS_CLONE3, ret(unknown))
	}
	p.when(unix.SYS_CLONE,
		load(dataArgument0),
		jump(unix.BPF_JSET, newNamespaces, 0, 1),
		ret(refuse),
		ret(allow))
	// To push characters into a terminal that somebody else reads.
	p.when(unix.SYS_IOCTL,
		load(dataArgument1),
		jump(unix.BPF_JEQ, unix.TIOCSTI, 1, 0),
		jump(unix.BPF_JEQ, unix.TIOCLINUX, 0, 1),
		ret(refuse),
		ret(allow))
	// A network namespace doesn't hold every family of sockets: vsock reaches the
	// hypervisor and other runners, and AF_ALG and the like are kernel to attack.
	for _, number := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		p.when(number,
			load(dataArgument0),
			jump(unix.BPF_JEQ, unix.AF_UNIX, 6, 0),
			jump(unix.BPF_JEQ, unix.AF_INET, 5, 0),
			jump(unix.BPF_JEQ, unix.AF_INET6, 4, 0),
			jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, 2),
			load(dataArgument2),
			jump(unix.BPF_JEQ, unix.NETLINK_ROUTE, 1, 0), // what lists interfaces and addresses
			ret(noFamily),
			ret(allow))
	}
	p.code = append(p.code, ret(allow))
	return p.code
}

// lastKnown is the highest number of a call that was thought about: all later
// ones, too, have the same on every architecture.
const lastKnown = unix.SYS_RSEQ_SLICE_YIELD

// denied are the calls that are refused whatever their arguments; those that
// only one architecture has are in a file of its own.
var denied = append([]uint32{
	// Mounts, roots and namespaces.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT, sysOpenTreeAttr, unix.SYS_LISTNS,
	// Other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	unix.SYS_PROCESS_MADVISE,
	// Subsystems with a history.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_VMSPLICE,
	// The machine.
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_NFSSERVCTL, unix.SYS_VHANGUP,
	unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY, unix.SYS_SET_MEMPOLICY_HOME_NODE, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
}, deniedHere...)

// A program is a filter that is being written; the number of the call is in
// its register between the parts.
type program struct{ code []unix.SockFilter }

func (p *program) load(offset uint32) { p.code = append(p.code, load(offset)) }

// unless ends with result if the register holds anything but value.
func (p *program) unless(value, result uint32) {
	p.code = append(p.code, jump(unix.BPF_JEQ, value, 1, 0), ret(result))
}

// when adds what is done for one call, which must end with a result.
func (p *program) when(number uint32, then ...unix.SockFilter) {
	p.code = append(p.code, jump(unix.BPF_JEQ, number, 0, uint8(len(then))))
	p.code = append(p.code, then...)
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jump skips so many instructions if the comparison holds, or doesn't.
func jump(comparison uint16, value uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | comparison | unix.BPF_K, Jt: yes, Jf: no, K: value}
}

func ret(result uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: result}
}

// loadFilter puts the filter on every thread.
func loadFilter(code []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	if thread != 0 {
		return fmt.Errorf("thread %d has a filter of its own", thread)
	}
	return nil
}
