package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter lets the calls of filter_calls.go through and no others. It is written
// out rather than made by go-seccomp-bpf, which compares all 64 bits of an argument
// of which the kernel reads 32, as in CVE-2019-7303.

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

	// What a program may be as: a 32-bit machine's, an old kernel's, and with addresses
	// that aren't random, as sanitizers and debuggers have it.
	personas   = 0x0008 | 0x0020000 | 0x0040000 // PER_LINUX32, UNAME26, ADDR_NO_RANDOMIZE
	askPersona = 0xffffffff
)

// A judgement is what is done about a call.
type judgement uint8

const (
	unlisted judgement = iota // ENOSYS, as on a kernel that doesn't have it: programs do without
	allowed
	refused // EPERM, as without privileges: what programs know of these calls
	byFlags
	byRequest
	byPersona
	byFamily
)

// tableSize is more than the highest number of a call that is listed: all later
// ones are as the last in the table.
const tableSize = 512

// codeSize is room for the instructions of every table that there is.
const codeSize = 256

// A table has a judgement for each number of a call.
type table [tableSize]judgement

// judgements are those of this architecture. The agent itself needs clone3 where
// it starts commands with that (forkInto), and refuses it to each of these then;
// its flags lie in memory, where a filter can't look: C libraries fall back to
// clone.
func judgements(clone3 bool) (t table) {
	for _, numbers := range [][]uint32{allowedCalls, allowedHere} {
		for _, number := range numbers {
			t[number] = allowed
		}
	}
	for _, numbers := range [][]uint32{refusedCalls, refusedHere} {
		for _, number := range numbers {
			t[number] = refused
		}
	}
	t[unix.SYS_CLONE] = byFlags
	t[unix.SYS_IOCTL] = byRequest
	t[unix.SYS_PERSONALITY] = byPersona
	t[unix.SYS_SOCKET], t[unix.SYS_SOCKETPAIR] = byFamily, byFamily
	if clone3 {
		t[unix.SYS_CLONE3] = allowed
	}
	return t
}

// assemble writes the filter for a table: a tree of comparisons, since a list of
// them would be gone through for each call that is judged by its arguments, and
// on kernels before 5.11 for every call. docs/security.md tells what is in the
// table.
func assemble(architecture uint32, t *table) []unix.SockFilter {
	p := program{code: make([]unix.SockFilter, 0, codeSize)} // an idle agent keeps each size that it ever allocated
	p.load(dataArchitecture)
	p.unless(architecture, killProcess)
	p.load(dataNumber)
	if architecture == unix.AUDIT_ARCH_X86_64 {
		const x32 = 0x40000000
		p.code = append(p.code, jump(unix.BPF_JGE, x32, 0, 1), ret(killProcess))
	}
	p.decide(t[:], 0)
	return p.code
}

// A program is a filter that is being written; the number of the call is in
// its register between the parts.
type program struct{ code []unix.SockFilter }

func (p *program) load(offset uint32) { p.code = append(p.code, load(offset)) }

// unless ends with result if the register holds anything but value.
func (p *program) unless(value, result uint32) {
	p.code = append(p.code, jump(unix.BPF_JEQ, value, 1, 0), ret(result))
}

// decide adds what is done for the calls from first on. The tree's jumps have 8
// bits, which it is small enough for: a test goes through all numbers.
func (p *program) decide(t []judgement, first uint32) {
	changes := 0
	for i := 1; i < len(t); i++ {
		if t[i] != t[i-1] {
			changes++
		}
	}
	if changes == 0 {
		p.judge(t[0])
		return
	}
	middle := 0
	for range (changes + 1) / 2 {
		middle = nextChange(t, middle)
	}
	at := len(p.code)
	p.code = append(p.code, jump(unix.BPF_JGE, first+uint32(middle), 0, 0))
	p.decide(t[:middle], first)
	p.code[at].Jt = uint8(len(p.code) - at - 1)
	p.decide(t[middle:], first+uint32(middle))
}

// nextChange returns where the judgement changes after i.
func nextChange(t []judgement, i int) int {
	for i++; t[i] == t[i-1]; i++ {
	}
	return i
}

// judge adds what is done for a call.
func (p *program) judge(j judgement) {
	switch j {
	case allowed:
		p.code = append(p.code, ret(allow))
	case refused:
		p.code = append(p.code, ret(refuse))
	case byFlags:
		p.code = append(p.code, load(dataArgument0), jump(unix.BPF_JSET, newNamespaces, 0, 1), ret(refuse), ret(allow))
	case byRequest:
		// To push characters into a terminal that somebody else reads.
		p.code = append(p.code, load(dataArgument1),
			jump(unix.BPF_JEQ, unix.TIOCSTI, 1, 0),
			jump(unix.BPF_JEQ, unix.TIOCLINUX, 0, 1),
			ret(refuse),
			ret(allow))
	case byPersona:
		p.code = append(p.code, load(dataArgument0),
			jump(unix.BPF_JEQ, askPersona, 1, 0),
			jump(unix.BPF_JSET, ^uint32(personas), 1, 0),
			ret(allow),
			ret(refuse))
	case byFamily:
		// A network namespace doesn't hold every family of sockets: vsock reaches the
		// hypervisor and other runners, and AF_ALG and the like are kernel to attack.
		p.code = append(p.code, load(dataArgument0),
			jump(unix.BPF_JEQ, unix.AF_UNIX, 6, 0),
			jump(unix.BPF_JEQ, unix.AF_INET, 5, 0),
			jump(unix.BPF_JEQ, unix.AF_INET6, 4, 0),
			jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, 2),
			load(dataArgument2),
			jump(unix.BPF_JEQ, unix.NETLINK_ROUTE, 1, 0), // what lists interfaces and addresses
			ret(noFamily),
			ret(allow))
	default:
		p.code = append(p.code, ret(unknown))
	}
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
